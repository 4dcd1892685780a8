use super::{Edit, Found, Misfit, NotAnObject, find, find_within, json_string, replace};
use crate::json::tests::{any_document, any_object};
use crate::json::{self, JsonErrorKind, Kind};
use bytes::Bytes;
use proptest::prelude::*;

fn joined(body: &Bytes, edits: impl IntoIterator<Item = Edit>) -> String {
    let parts = replace(body, edits).unwrap();
    let length = parts.byte_len();
    let joined: Vec<u8> = parts.flatten().collect();
    assert_eq!(length, joined.len() as u64);
    String::from_utf8(joined).unwrap()
}

fn with(body: &'static str, key: &str, json: &'static str) -> String {
    let body = Bytes::from_static(body.as_bytes());
    let edit = find(&body, [key]).unwrap().set(key, Bytes::from_static(json.as_bytes()));
    joined(&body, edit)
}

fn found(body: &str) -> Found {
    let [found] = find(body.as_bytes(), ["model"]).unwrap().found().clone();
    found
}

proptest! {
    #[test]
    fn only_the_value_of_model_changes(document in any_object(), name in "\\PC{0,20}|[\\x00-\\x7f]{0,8}") {
        let mut theirs: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&document).unwrap();
        let body = Bytes::from(document.clone());
        let object = find(&body, ["model"]).unwrap();
        let edit = object.set("model", json_string(&name));
        let repeated = json::parse(&body).unwrap().members().filter(|(key, _)| key.str_is("model")).count() > 1;
        prop_assert_eq!(repeated, edit.is_none());
        if let Some(edit) = edit {
            let spliced = joined(&body, [edit]);
            match &object.found()[0] {
                Found::Once(span) => {
                    let expected = [&document[..span.start], str::from_utf8(&json_string(&name)).unwrap(), &document[span.end..]].concat();
                    prop_assert_eq!(&spliced, &expected);
                }
                found => prop_assert_eq!(found, &Found::Absent),
            }
            let ours: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&spliced).unwrap();
            theirs.insert("model".to_owned(), name.into());
            prop_assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn a_body_is_looked_into_if_it_is_one_object(document in any_document()) {
        let value = json::parse(document.as_bytes()).unwrap();
        match find(document.as_bytes(), ["model"]) {
            Ok(_) => prop_assert!(value.is_object()),
            Err(error) => prop_assert_eq!(error, NotAnObject::Other(value.kind())),
        }
    }

    #[test]
    fn it_says_of_a_body_what_parse_says(bytes in proptest::collection::vec(proptest::sample::select(b"{}{}{}[]\"\"\":,\\u0a1 ".to_vec()), 0..40)) {
        let parsed = json::parse(&bytes).map(|value| value.kind());
        match find(&bytes, ["a"]) {
            Ok(_) => prop_assert_eq!(parsed, Ok(Kind::Object)),
            Err(NotAnObject::NotJson(error)) => prop_assert_eq!(parsed, Err(error)),
            Err(NotAnObject::Other(kind)) => prop_assert_eq!(parsed, Ok(kind)),
        }
    }

    #[test]
    fn serde_reads_back_what_was_quoted(text in any::<String>()) {
        let read: String = serde_json::from_slice(&json_string(&text)).unwrap();
        prop_assert_eq!(&read, &text);
        prop_assert!(json::parse(&json_string(&text)).unwrap().str_is(&text));
    }
}

#[test]
fn only_a_key_at_the_top_counts() {
    assert_eq!(found(r#"{"a":{"model":1},"b":[{"model":2}],"c":"model"}"#), Found::Absent);
    assert_eq!(found(r#"{"a":{"model":1},"mod\u0065l" : 22 }"#), Found::Once(32..34));
    assert_eq!(found(r#"{"model":1,"\u006dodel":1}"#), Found::Repeated);
    assert_eq!(found(r#"{"model":1,"model":1,"model":1}"#), Found::Repeated);
}

#[test]
fn the_rest_of_the_body_is_checked_too() {
    let error = find(br#"{"model":"a","b":[1,]}"#, ["model"]).unwrap_err();
    assert!(
        matches!(error, NotAnObject::NotJson(error) if error.kind() == JsonErrorKind::Malformed && error.offset() == 20)
    );
    let error = find(br#"{"model":"a"} {}"#, ["model"]).unwrap_err();
    assert!(matches!(error, NotAnObject::NotJson(error) if error.offset() == 14));
    let error = find(br#"{"model":"a""#, ["model"]).unwrap_err();
    assert!(
        matches!(error, NotAnObject::NotJson(error) if error.kind() == JsonErrorKind::Truncated)
    );
    let deep = format!("{{\"model\":{}", "[".repeat(128));
    let error = find(deep.as_bytes(), ["model"]).unwrap_err();
    assert!(matches!(error, NotAnObject::NotJson(error) if error.kind() == JsonErrorKind::TooDeep));
}

#[test]
fn another_value_than_an_object_is_named() {
    assert_eq!(find(b" [1]", ["model"]).unwrap_err(), NotAnObject::Other(Kind::Array));
    assert_eq!(find(b"[1]", ["model"]).unwrap_err().to_string(), "JSON, but no object: Array");
}

#[test]
fn an_absent_key_becomes_the_first_member() {
    assert_eq!(with(" { \"a\" : 1 }", "b", "2"), " {\"b\":2, \"a\" : 1 }");
    assert_eq!(with("{}", "b", "2"), "{\"b\":2}");
    assert_eq!(with("\u{feff}{ }", "b\"", "2"), "\u{feff}{\"b\\\"\":2 }");
}

#[test]
fn two_edits_keep_their_order_where_it_matters() {
    let text = |body: &'static str, keys: [&str; 2]| {
        let body = Bytes::from_static(body.as_bytes());
        let object = find(&body, keys).unwrap();
        joined(&body, keys.map(|key| object.set(key, Bytes::from_static(b"9")).unwrap()))
    };
    assert_eq!(text(r#"{"a":1,"b":2}"#, ["a", "b"]), r#"{"a":9,"b":9}"#);
    assert_eq!(text(r#"{"a":1,"b":2}"#, ["b", "a"]), r#"{"a":9,"b":9}"#);
    assert_eq!(text(r#"{"a":1}"#, ["a", "b"]), r#"{"b":9,"a":9}"#);
    assert_eq!(text(r#"{"a":1}"#, ["b", "c"]), r#"{"b":9,"c":9,"a":1}"#);
    assert_eq!(text("{}", ["b", "c"]), r#"{"b":9,"c":9}"#);
}

#[test]
fn a_nested_object_is_edited_in_its_place() {
    let body = Bytes::from_static(br#"{"model":"a","reasoning": {"summary":"auto"} }"#);
    let outer = find(&body, ["model", "reasoning"]).unwrap();
    let [_, Found::Once(span)] = outer.found().clone() else { panic!("reasoning is there once") };
    let inner = find_within(&body, span, ["effort", "summary"]).unwrap();
    let effort = inner.set("effort", json_string("high")).unwrap();
    let model = outer.set("model", json_string("b")).unwrap();
    assert_eq!(
        joined(&body, [effort, model]),
        r#"{"model":"b","reasoning": {"effort":"high","summary":"auto"} }"#
    );
    let summary = inner.set("summary", json_string("none")).unwrap();
    assert_eq!(joined(&body, [summary]), r#"{"model":"a","reasoning": {"summary":"none"} }"#);
}

#[test]
fn the_pieces_are_the_body_s_own_bytes() {
    let body = Bytes::from(r#"{"model":"a","prompt":"long"}"#.to_owned());
    let edit = find(&body, ["model"]).unwrap().set("model", json_string("b")).unwrap();
    let parts = replace(&body, [edit]).unwrap();
    let [before, _, after] = parts.as_slice() else { panic!("three pieces") };
    assert_eq!(before.as_ptr(), body.as_ptr());
    assert_eq!(after.as_ptr(), body[12..].as_ptr());
    assert_eq!(parts.len(), 3);
}

#[test]
fn no_edit_leaves_the_body_in_one_piece() {
    let body = Bytes::from_static(b"{}");
    assert_eq!(replace(&body, []).unwrap().as_slice(), [body]);
}

#[test]
fn edits_that_do_not_fit_are_refused() {
    let body = Bytes::from_static(br#"{"a":1,"b":{"c":2}}"#);
    let object = find(&body, ["a", "b"]).unwrap();
    let edit = |key| object.set(key, Bytes::from_static(b"0")).unwrap();
    assert_eq!(replace(&body, [edit("a"), edit("a")]).unwrap_err(), Misfit);
    assert_eq!(replace(&body, [edit("a"), edit("a"), edit("b")]).unwrap_err(), Misfit);
    assert_eq!(replace(&Bytes::from_static(b"{}"), [edit("b")]).unwrap_err(), Misfit);
    assert_eq!(object.set("c", Bytes::new()), None);
    let Found::Once(span) = object.found()[1].clone() else { panic!("b is there once") };
    let inner =
        find_within(&body, span, ["c"]).unwrap().set("c", Bytes::from_static(b"0")).unwrap();
    assert_eq!(replace(&body, [inner, edit("b")]).unwrap_err(), Misfit);
}
