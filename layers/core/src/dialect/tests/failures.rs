use http::StatusCode;

use crate::Class;
use crate::dialect::Dialect;
use crate::dialect::failure::{self, Failure};
use crate::json;

fn read(dialect: Dialect, status: u16, document: &str) -> Failure {
    let document = json::parse(document.as_bytes()).unwrap();
    let error = failure::find_in_failed(document).unwrap();
    Failure::read(Some(dialect), StatusCode::from_u16(status).unwrap(), error, Some(document))
}

/// The order in which the places are looked at.
#[test]
fn the_first_place_that_holds_a_code_names_it() {
    for (document, code) in [
        (r#"{"error":{"details":{"error_code":"a"},"code":"b","type":"c"}}"#, "a"),
        (
            r#"{"error":{"details":[{"@type":"x/google.rpc.ErrorInfo","reason":"r"}],"code":429,"status":"S"}}"#,
            "r",
        ),
        (r#"{"error":{"metadata":{"error_type":"e","limit_source":"l"},"code":402}}"#, "l"),
        (r#"{"error":{"metadata":{"error_type":"e"},"code":402,"type":"t"}}"#, "e"),
        (r#"{"error":{"code":"b","type":"c","status":"d"}}"#, "b"),
        (r#"{"error":{"code":"429","type":"c"}}"#, "c"),
        (r#"{"error":{"code":null,"type":"c"}}"#, "c"),
        (r#"{"error":{"code":"","type":" ","status":"d"}}"#, "d"),
        (r#"{"error":{"code":503,"status":"UNAVAILABLE"}}"#, "UNAVAILABLE"),
        (r#"{"error":{"code":503}}"#, "503"),
        (r#"{"error":{"code":"503","type":null}}"#, "503"),
        (r#"{"code":"Some sentence","error":"text"}"#, "Some sentence"),
        (
            r#"{"object":"error","message":"m","type":"BadRequestError","code":400}"#,
            "BadRequestError",
        ),
        (r#"{"type":"error","code":null,"message":"m","status":"s"}"#, "s"),
        (r#"{"choices":[{},{"error":{"code":502}}]}"#, "502"),
        (r#"{"type":"response.failed","response":{"error":{"code":"x"}}}"#, "x"),
    ] {
        assert_eq!(read(Dialect::OPENAI, 500, document).code.as_deref(), Some(code), "{document}");
    }
    for document in [r#"{"error":"Unauthorized"}"#, r#"{"message":"m"}"#, r#"{"error":{}}"#] {
        assert_eq!(read(Dialect::OPENAI, 500, document).code, None, "{document}");
    }
}

#[test]
fn null_and_nothing_are_no_error() {
    for document in [
        r#"{"id":"y","error":null,"status":"completed"}"#,
        r#"{"error":""}"#,
        r#"{"error":false}"#,
        r#"{"choices":[{"error":null}],"response":{"error":null}}"#,
        r#"{"type":"message","message":"m"}"#,
        "[]",
        "7",
    ] {
        assert!(failure::find(json::parse(document.as_bytes()).unwrap()).is_none(), "{document}");
    }
}

#[test]
fn a_status_beats_a_code_that_only_repeats_one() {
    let document = r#"{"error":{"type":"invalid_request_error","code":null}}"#;
    for (status, class) in [
        (401, Class::Auth),
        (404, Class::NotFound),
        (413, Class::TooLarge),
        (500, Class::Transient),
        (200, Class::InvalidRequest),
    ] {
        let wire = StatusCode::from_u16(status).unwrap();
        assert_eq!(read(Dialect::OPENAI, status, document).class(wire), class, "{status}");
        assert_eq!(read(Dialect::ANTHROPIC, status, document).class(wire), class, "{status}");
    }
}

#[test]
fn every_code_of_the_tables_decides() {
    for dialect in Dialect::ALL {
        let facts = dialect.facts();
        for (code, class) in facts.strong {
            let document = format!(r#"{{"error":{{"type":"{code}"}}}}"#);
            for status in [200, 400, 418, 500] {
                let wire = StatusCode::from_u16(status).unwrap();
                assert_eq!(
                    read(*dialect, status, &document).class(wire),
                    *class,
                    "{code} at {status}"
                );
            }
        }
        for (code, class) in facts.weak {
            assert!(!facts.strong.iter().any(|(strong, _)| strong == code), "{code} stands twice");
            let document = format!(r#"{{"error":{{"type":"{code}"}}}}"#);
            assert_eq!(read(*dialect, 200, &document).class(StatusCode::OK), *class, "{code}");
        }
    }
}

/// gemini-cli, googleErrors.test.ts.
#[test]
fn a_message_that_is_an_error_document_is_opened() {
    let inner = r#"{\"error\":{\"code\":429,\"status\":\"RESOURCE_EXHAUSTED\",\"message\":\"in\",\"details\":[{\"@type\":\"type.googleapis.com/google.rpc.RetryInfo\",\"retryDelay\":\"7s\"}]}}"#;
    let failure =
        read(Dialect::GEMINI, 429, &format!(r#"{{"error":{{"code":429,"message":"{inner}"}}}}"#));
    assert_eq!(failure.code.as_deref(), Some("RESOURCE_EXHAUSTED"));
    assert_eq!(failure.hint.unwrap().wait().as_secs(), 7);
    assert_eq!(failure.message.as_deref(), Some("in"));
    let outer = read(Dialect::GEMINI, 429, r#"{"error":{"code":429,"message":"{\"a\":1}"}}"#);
    assert_eq!(outer.code.as_deref(), Some("429"));
}

#[test]
fn long_texts_are_cut_at_a_character() {
    let document = format!(
        r#"{{"error":{{"code":"{}","message":"{}"}}}}"#,
        "ü".repeat(400),
        "é".repeat(9_000)
    );
    let failure = read(Dialect::OPENAI, 500, &document);
    assert_eq!(failure.code.unwrap().len(), 256);
    assert_eq!(failure.message.unwrap().len(), 2_048);
}
