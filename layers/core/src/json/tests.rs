use super::text::end_of_string;
use super::{JsonError, JsonErrorKind, Kind, Value, parse, skip_value};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::value::RawValue;
use std::borrow::Cow;

fn kind(input: &str) -> JsonErrorKind {
    parse(input.as_bytes()).unwrap_err().kind()
}

fn offset(input: &str) -> usize {
    parse(input.as_bytes()).unwrap_err().offset()
}

fn value(input: &str) -> Value<'_> {
    parse(input.as_bytes()).unwrap()
}

fn space() -> impl Strategy<Value = &'static str> {
    select(vec!["", "", "", " ", "\n\t", " \r\n", "         \n            "])
}

/// The inside of a string, with runs on both sides of the lengths at which the scanner changes its
/// ways.
fn quoted() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[ -!#-\\[\\]-~]{0,12}",
        1 => "[a-z]{60,70}",
        1 => "\\PC{0,4}".prop_map(|text| text.replace(['"', '\\'], "")),
        3 => select(vec![
            r"\n", r#"\""#, r"\\", r"\/", r"\b", r"\f", r"\r", r"\t", r"\u0041", r"\u00e9", r"\u0000", r"\ud83d\ude00", r"\uD83D\uDE00",
        ])
        .prop_map(str::to_owned),
    ];
    vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

/// Blocks full of escapes, at whose edges anything may happen.
fn long_text() -> impl Strategy<Value = String> {
    let common = select(vec!["a", "bcdefgh", r"\n", r#"\""#, r"\t"]);
    let odd = select(vec![
        "\"",
        r"\\",
        r"\\\",
        r#"\\""#,
        r"\u00e9",
        r"\ud83d\ude00",
        r"\u4e00\u4e01\u4e02",
        r"\u12x4",
        r"\q",
        r"\/",
    ]);
    let stretch = vec(common, 0..60).prop_map(|pieces| pieces.concat());
    vec((stretch, odd), 0..5).prop_map(|all| all.iter().map(|(a, b)| format!("{a}{b}")).collect())
}

fn key() -> impl Strategy<Value = String> {
    let odd =
        vec!["model", r"mod\u0065l", r"\u006dodel", "other", r"oth\u0065r", "models", "", "Model"];
    prop_oneof![select(odd).prop_map(str::to_owned), quoted()]
}

fn scalar() -> impl Strategy<Value = String> {
    let odd = vec![
        "null",
        "true",
        "false",
        "0",
        "-0",
        "1.0",
        "9007199254740993",
        "18446744073709551615",
        "18446744073709551616",
        "1e400",
        "-1E-7",
        "0.10",
        "1e+3",
        "\"\"",
        "{}",
        "[]",
        "{ }",
        "[\n]",
    ];
    prop_oneof![
        2 => select(odd).prop_map(str::to_owned),
        1 => any::<i64>().prop_map(|number| number.to_string()),
        2 => quoted().prop_map(|text| format!("\"{text}\"")),
    ]
}

/// An object's text, given its members'.
fn object_of(value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let member = (space(), key(), space(), space(), value, space());
    vec(member, 0..6).prop_map(|members| {
        let members: Vec<_> = members
            .iter()
            .map(|(a, key, b, c, value, d)| format!("{a}\"{key}\"{b}:{c}{value}{d}"))
            .collect();
        format!("{{{}}}", members.join(","))
    })
}

fn any_value() -> impl Strategy<Value = String> {
    scalar().prop_recursive(4, 40, 5, |inner| {
        let inner = inner.boxed();
        let array = vec((space(), inner.clone(), space()), 0..5).prop_map(|elements| {
            let elements: Vec<_> =
                elements.iter().map(|(a, value, b)| format!("{a}{value}{b}")).collect();
            format!("[{}]", elements.join(","))
        });
        prop_oneof![array, object_of(inner)]
    })
}

fn around(value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    (space(), value, space()).prop_map(|(a, value, b)| format!("{a}{value}{b}"))
}

/// Any document, as a provider or a caller might write it.
pub(crate) fn any_document() -> impl Strategy<Value = String> {
    around(any_value())
}

/// A document that is an object.
pub(crate) fn any_object() -> impl Strategy<Value = String> {
    around(object_of(any_value()))
}

/// What serde_json says; nothing where we are meant to differ.
fn serde_accepts(input: &[u8]) -> Option<bool> {
    let text = str::from_utf8(input).ok()?;
    match serde_json::from_str::<&RawValue>(text) {
        Ok(_) => Some(true),
        Err(error) if error.to_string().contains("control character") => None,
        Err(_) => Some(false),
    }
}

/// The end of a string as the grammar says it, a byte at a time.
fn plain_end_of_string(input: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match input.get(at..)? {
            [b'"', ..] => return Some(at + 1),
            [b'\\', b'u', digits @ ..] => {
                let digits = digits.get(..4)?;
                if !digits.iter().all(u8::is_ascii_hexdigit) {
                    return None;
                }
                at += 6;
            }
            [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => at += 2,
            [b'\\', ..] => return None,
            [_, ..] => at += 1,
            [] => return None,
        }
    }
}

fn agrees(ours: Option<Value<'_>>, theirs: Option<&serde_json::Value>) -> bool {
    ours.map(|ours| serde_json::from_slice::<serde_json::Value>(ours.raw()).unwrap())
        == theirs.cloned()
}

/// Every way into a value, for inputs of which nothing is known.
fn walk_through(value: Value<'_>) -> usize {
    let _ = (
        value.as_str(),
        value.as_u64(),
        value.as_f64(),
        value.as_bool(),
        value.str_is("model"),
        value.get("model"),
    );
    let members: usize =
        value.members().map(|(key, value)| key.as_str().len() + walk_through(value)).sum();
    1 + members + value.elements().map(walk_through).sum::<usize>()
}

proptest! {
    #[test]
    fn what_serde_reads_is_valid(document in any_document()) {
        prop_assert_eq!(serde_accepts(document.as_bytes()), Some(true));
        let value = parse(document.as_bytes()).unwrap();
        prop_assert_eq!(value.raw(), document.trim().as_bytes());
        prop_assert_eq!(skip_value(document.as_bytes(), 0).unwrap(), document.trim_end().len());
    }

    #[test]
    fn a_changed_document_is_valid_if_serde_says_so(
        document in any_document(),
        changes in vec((any::<Index>(), select(b"{}[]\":,\\ubn0189.-+eE tfnulx\x7f".to_vec()), 0..3), 1..4),
    ) {
        let mut bytes = document.into_bytes();
        for (index, byte, change) in changes {
            let at = index.index(bytes.len() + 1);
            match (change, bytes.get_mut(at)) {
                (0, Some(old)) => *old = byte,
                (1, Some(_)) => drop(bytes.remove(at)),
                _ => bytes.insert(at, byte),
            }
        }
        let ours = parse(&bytes);
        if let Some(theirs) = serde_accepts(&bytes) {
            prop_assert_eq!(ours.is_ok(), theirs, "{:?}: {:?}", String::from_utf8_lossy(&bytes), ours);
        }
        if let Err(error) = ours {
            prop_assert!(error.offset() <= bytes.len());
            prop_assert_eq!(error.kind() == JsonErrorKind::Truncated, error.offset() == bytes.len());
        }
    }

    #[test]
    fn a_document_cut_anywhere_is_truncated(document in any_document()) {
        let document = document.trim().as_bytes();
        // What is left of a number may be one.
        if value(str::from_utf8(document).unwrap()).kind() != Kind::Number {
            for cut in 0..document.len() {
                let error = parse(&document[..cut]).unwrap_err();
                prop_assert_eq!((error.kind(), error.offset()), (JsonErrorKind::Truncated, cut));
            }
        }
    }

    #[test]
    fn a_string_ends_where_the_grammar_says(string in vec(select(b"aaaaaaaaaa\\\\\\nu00\"".to_vec()), 0..300), start in 0_usize..70) {
        let mut input = vec![b' '; start];
        input.extend_from_slice(&string);
        prop_assert_eq!(end_of_string(&input, start).ok(), plain_end_of_string(&string).map(|end| start + end));
    }

    #[test]
    fn an_escaped_text_ends_where_the_grammar_says(text in quoted(), after in "[a\"\\\\]{0,80}") {
        let string = format!("{text}\"{after}");
        prop_assert_eq!(end_of_string(string.as_bytes(), 0).ok(), Some(text.len() + 1));
    }

    #[test]
    fn a_long_text_ends_where_the_grammar_says(text in long_text(), after in "[a\"\\\\]{0,80}") {
        let input = format!("{text}{after}");
        prop_assert_eq!(end_of_string(input.as_bytes(), 0).ok(), plain_end_of_string(input.as_bytes()));
    }

    #[test]
    fn members_are_those_that_serde_finds(document in any_object()) {
        let theirs: serde_json::Value = serde_json::from_str(&document).unwrap();
        let ours = value(&document);
        prop_assert!(agrees(ours.get("model"), theirs.get("model")));
        let keys = ["other", "model", "absent", ""];
        for (ours, key) in ours.get_many(keys).into_iter().zip(keys) {
            prop_assert!(agrees(ours, theirs.get(key)));
        }
        for (key, _) in ours.members() {
            let text = key.as_str();
            prop_assert!(theirs.get(&*text).is_some());
            prop_assert!(key.str_is(&text));
            let longer = format!("{text}x");
            prop_assert!(!key.str_is(&longer));
        }
    }

    #[test]
    fn elements_and_scalars_are_those_that_serde_reads(document in any_document()) {
        let theirs: serde_json::Value = serde_json::from_str(&document).unwrap();
        let ours = value(&document);
        let empty = vec![];
        let elements = theirs.as_array().unwrap_or(&empty);
        prop_assert_eq!(ours.elements().count(), elements.len());
        for (ours, theirs) in ours.elements().zip(elements).chain([(ours, &theirs)]) {
            let text = ours.as_str();
            prop_assert_eq!(text.as_deref(), theirs.as_str());
            prop_assert_eq!(ours.as_u64(), theirs.as_u64());
            prop_assert_eq!(ours.as_f64(), theirs.as_f64());
            prop_assert_eq!(ours.as_bool(), theirs.as_bool());
            prop_assert_eq!(ours.is_null(), theirs.is_null());
            prop_assert_eq!(ours.is_object(), theirs.is_object());
            prop_assert_eq!(ours.is_empty_string(), theirs.as_str() == Some(""));
            prop_assert_eq!(ours.elements().next().is_some(), theirs.as_array().is_some_and(|array| !array.is_empty()));
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in vec(any::<u8>(), 0..200), at in 0_usize..250) {
        let _ = parse(&bytes).map(walk_through);
        let _ = skip_value(&bytes, at);
        walk_through(Value::new(&bytes));
    }

    #[test]
    fn no_json_like_bytes_make_it_panic(bytes in vec(select(b"{}[]\":,\\u0d8e1-.tn ".to_vec()), 0..80)) {
        let _ = parse(&bytes).map(walk_through);
        walk_through(Value::new(&bytes));
    }
}

#[test]
fn one_hundred_and_twenty_eight_levels_are_read_and_one_more_is_not() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let nested = |depth: usize| format!("{}0{}", open.repeat(depth), close.repeat(depth));
        assert!(parse(nested(128).as_bytes()).is_ok());
        assert_eq!(kind(&nested(129)), JsonErrorKind::TooDeep);
        assert_eq!(kind(&nested(10_000)), JsonErrorKind::TooDeep);
    }
    assert_eq!(kind(&"[".repeat(10_000)), JsonErrorKind::TooDeep);
    assert!(parse(format!("{}{}", "[".repeat(128), "]".repeat(128)).as_bytes()).is_ok());
    assert_eq!(offset(&format!("{}{{}}{}", "[".repeat(128), "]".repeat(128))), 128);
}

#[test]
fn every_level_of_the_deepest_document_can_be_gone_into() {
    let document = format!("{}7{}", "{\"a\":[".repeat(64), "]}".repeat(64));
    let mut inner = value(&document);
    for _ in 0..64 {
        inner = inner.get("a").and_then(|array| array.elements().next()).unwrap();
    }
    assert_eq!(inner.as_u64(), Some(7));
}

#[test]
fn a_byte_order_mark_is_stepped_over_once() {
    assert_eq!(value("\u{feff} {\"a\":1}").raw(), b"{\"a\":1}");
    assert_eq!(kind("\u{feff}\u{feff}1"), JsonErrorKind::Malformed);
    assert_eq!(kind("\u{feff}"), JsonErrorKind::Truncated);
}

#[test]
fn an_error_says_where_the_document_stops_making_sense() {
    assert_eq!((kind("{\"a\" 1}"), offset("{\"a\" 1}")), (JsonErrorKind::Malformed, 5));
    assert_eq!((kind("[1,]"), offset("[1,]")), (JsonErrorKind::Malformed, 3));
    assert_eq!((kind("\"\\u00x0\""), offset("\"\\u00x0\"")), (JsonErrorKind::Malformed, 5));
    assert_eq!((kind("nul"), offset("nul")), (JsonErrorKind::Truncated, 3));
    assert_eq!((kind("nule"), offset("nule")), (JsonErrorKind::Malformed, 3));
    assert_eq!((kind("01"), offset("01")), (JsonErrorKind::Malformed, 1));
    assert_eq!((kind("1."), offset("1.")), (JsonErrorKind::Truncated, 2));
    assert_eq!((kind("{} x"), offset("{} x")), (JsonErrorKind::Malformed, 3));
    assert_eq!((kind(""), offset("")), (JsonErrorKind::Truncated, 0));
    let long = format!("\"{}\\n{}\\q\"", "a".repeat(100), "b".repeat(100));
    assert_eq!((kind(&long), offset(&long)), (JsonErrorKind::Malformed, 204));
}

#[test]
fn an_error_reads_as_a_sentence() {
    let text = |input: &str| parse(input.as_bytes()).unwrap_err().to_string();
    assert_eq!(text("[1,]"), "not JSON: byte 3 does not fit");
    assert_eq!(text("[1,"), "JSON cut off after 3 bytes");
    assert_eq!(text(&"[".repeat(129)), "JSON nested too deeply at byte 128");
}

#[test]
fn a_value_is_skipped_wherever_it_begins() {
    assert_eq!(skip_value(b"xx [1, 2] yy", 2), Ok(9));
    let past: Result<usize, JsonError> = skip_value(b"1", 9);
    assert_eq!(past.map_err(|error| error.kind()), Err(JsonErrorKind::Truncated));
}

#[test]
fn strings_may_hold_control_characters_and_bytes_that_are_not_utf_8() {
    let value = parse(b"{\"a\":\"x\n\xFF\"}").unwrap().get("a").unwrap();
    assert_eq!(value.as_str().unwrap(), "x\n\u{fffd}");
    assert!(!value.str_is("x\n\u{fffd}"));
}

#[test]
fn only_a_string_with_escapes_is_copied() {
    assert!(matches!(value("\"plain\"").as_str(), Some(Cow::Borrowed("plain"))));
    assert!(matches!(value("\"pl\\u0061in\"").as_str(), Some(Cow::Owned(text)) if text == "plain"));
}

#[test]
fn half_of_a_surrogate_pair_is_replaced() {
    for (escaped, text) in [
        (r#""\ud83d\ude00""#, "\u{1f600}"),
        (r#""\ud83d""#, "\u{fffd}"),
        (r#""\ude00""#, "\u{fffd}"),
        (r#""\ud83d\ud83d\ude00""#, "\u{fffd}\u{1f600}"),
        (r#""\ud83dA""#, "\u{fffd}A"),
        (r#""\ud83d\n""#, "\u{fffd}\n"),
        (r#""\ud83d\u0041""#, "\u{fffd}A"),
    ] {
        assert_eq!(value(escaped).as_str().unwrap(), text, "{escaped}");
        assert!(value(escaped).str_is(text));
    }
}

#[test]
fn the_last_of_several_equal_keys_counts() {
    let object = value(r#"{"a":1,"\u0061":2,"b":3}"#);
    assert_eq!(object.get("a").and_then(Value::as_u64), Some(2));
    let [b, a] = object.get_many(["b", "a"]);
    assert_eq!((b.and_then(Value::as_u64), a.and_then(Value::as_u64)), (Some(3), Some(2)));
    assert_eq!(object.members().count(), 3);
}
