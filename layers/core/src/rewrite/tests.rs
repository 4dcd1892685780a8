use super::*;
use proptest::prelude::*;

fn profile(dialect: Dialect) -> Profile {
    Profile::new("p", "new-model", "provider", dialect).unwrap()
}

fn post(uri: &str, body: &str) -> Request<RequestBody> {
    Request::post(uri).body(RequestBody::from(body.to_owned())).unwrap()
}

fn text(request: &Request<RequestBody>) -> String {
    String::from_utf8(request.body().to_bytes().to_vec()).unwrap()
}

/// Where a request to `from` goes for an endpoint, and its headers then.
fn sent(from: &str, endpoint: &str, dialect: Dialect) -> String {
    let endpoint = endpoint.parse().unwrap();
    let profile = profile(dialect).with_endpoint(endpoint).unwrap().without_api_key();
    let mut request = post(from, r#"{"model":"m"}"#);
    apply(&mut request, &profile, Place::Fallback).unwrap();
    request.uri().to_string()
}

#[test]
fn the_apis_own_part_of_the_path_is_appended_and_a_version_never_doubled() {
    let cases = [
        ("/v1/chat/completions", "https://b.example", "https://b.example/v1/chat/completions"),
        ("/v1/chat/completions", "https://b.example/", "https://b.example/v1/chat/completions"),
        ("/v1/chat/completions", "https://b.example/v1", "https://b.example/v1/chat/completions"),
        ("/v1/chat/completions", "https://b.example/v1/", "https://b.example/v1/chat/completions"),
        (
            "/v1/chat/completions",
            "https://b.example/api",
            "https://b.example/api/v1/chat/completions",
        ),
        (
            "/chat/completions",
            "https://b.example/api/v1",
            "https://b.example/api/v1/chat/completions",
        ),
        (
            "https://a.example/openai/v1/chat/completions?x=1",
            "https://b.example/v2",
            "https://b.example/v2/chat/completions?x=1",
        ),
        (
            "https://a.example:8443/team/chat/completions",
            "http://b.example:99/v1",
            "http://b.example:99/v1/chat/completions",
        ),
        // A path that the API has no name for: from its version.
        (
            "https://a.example/p/v1/moderations",
            "https://b.example/q",
            "https://b.example/q/v1/moderations",
        ),
        ("https://a.example/odd", "https://b.example/q", "https://b.example/q/odd"),
        (
            "/v1/chat/completions?x=1",
            "https://b.example/v1?api-version=2",
            "https://b.example/v1/chat/completions?api-version=2&x=1",
        ),
    ];
    for (from, endpoint, expected) in cases {
        assert_eq!(sent(from, endpoint, Dialect::OPENAI), expected, "{from} at {endpoint}");
    }
    let count = sent(
        "https://a.example/v1/messages/count_tokens",
        "https://b.example/v1",
        Dialect::ANTHROPIC,
    );
    assert_eq!(count, "https://b.example/v1/messages/count_tokens");
    let gemini = sent(
        "https://a.example/g/v1beta/models/old:generateContent?alt=json",
        "https://b.example/v1",
        Dialect::GEMINI,
    );
    assert_eq!(gemini, "https://b.example/v1/models/new-model:generateContent?alt=json");
}

#[test]
fn a_request_that_is_addressed_to_the_endpoint_already_keeps_its_address_and_its_credentials() {
    let same = [
        ("https://a.example/v1/chat/completions", "https://a.example"),
        ("https://A.example:443/v1/chat/completions", "https://a.example/v1"),
        ("http://a.example/v1/chat/completions", "http://a.example:80"),
    ];
    for (uri, endpoint) in same {
        let profile = profile(Dialect::OPENAI).with_endpoint(endpoint.parse().unwrap()).unwrap();
        let mut request = post(uri, r#"{"model":"m"}"#);
        request.headers_mut().insert("authorization", HeaderValue::from_static("Bearer own"));
        apply(&mut request, &profile, Place::Fallback).unwrap();
        assert_eq!(*request.uri(), uri);
        assert_eq!(request.headers()["authorization"], "Bearer own");
    }
    let other = [
        ("https://a.example/v1/chat/completions", "http://a.example"),
        ("https://a.example/v1/chat/completions", "https://a.example:8443"),
        ("https://a.example/v1/chat/completions", "https://a.example/v1/chat/comp"),
        ("https://a.example.evil/v1/chat/completions", "https://a.example"),
        ("/v1/chat/completions", "https://a.example"),
    ];
    for (uri, endpoint) in other {
        let profile = profile(Dialect::OPENAI).with_endpoint(endpoint.parse().unwrap()).unwrap();
        let error =
            apply(&mut post(uri, r#"{"model":"m"}"#), &profile, Place::Primary).unwrap_err();
        assert!(matches!(error, Unfit::NoCredential { .. }), "{uri} at {endpoint}: {error}");
    }
}

#[test]
fn nothing_of_the_callers_credentials_goes_to_another_endpoint() {
    let profile = profile(Dialect::ANTHROPIC)
        .with_endpoint("https://b.example".parse().unwrap())
        .unwrap()
        .with_api_key(" key-b\n")
        .unwrap();
    let mut request =
        post("https://a.example/v1/messages?key=SECRET&%6bey=SECRET&beta=true", r#"{"model":"m"}"#);
    for name in Dialect::credential_headers() {
        request.headers_mut().append(*name, HeaderValue::from_static("SECRET"));
        request.headers_mut().append(*name, HeaderValue::from_static("SECRET"));
    }
    request.headers_mut().insert("host", HeaderValue::from_static("a.example"));
    request.headers_mut().insert("x-trace", HeaderValue::from_static("t"));
    apply(&mut request, &profile, Place::Fallback).unwrap();
    assert_eq!(request.uri(), "https://b.example/v1/messages?beta=true");
    let all: Vec<_> = request.headers().iter().map(|(n, v)| (n.as_str(), v.as_bytes())).collect();
    assert_eq!(all.len(), 2, "{all:?}");
    assert_eq!(request.headers()["x-api-key"], "key-b");
    assert!(request.headers()["x-api-key"].is_sensitive());
    assert_eq!(request.headers()["x-trace"], "t");
    assert!(!format!("{profile:?}").contains("key-b"), "{profile:?}");
}

#[test]
fn a_key_of_its_own_replaces_the_callers_even_where_the_caller_addressed() {
    let profile = profile(Dialect::OPENAI).with_api_key("own").unwrap();
    let mut request = post("/v1/chat/completions?key=SECRET&a=1", r#"{"model":"m"}"#);
    request.headers_mut().insert("x-api-key", HeaderValue::from_static("SECRET"));
    apply(&mut request, &profile, Place::Primary).unwrap();
    assert_eq!(request.uri(), "/v1/chat/completions?a=1");
    assert_eq!(request.headers().len(), 1);
    assert_eq!(request.headers()["authorization"], "Bearer own");
}

#[test]
fn keys_that_no_header_can_carry_and_addresses_of_nothing_are_errors_that_do_not_repeat_them() {
    for key in ["", " ", "\n", "se\ncret"] {
        let error = profile(Dialect::OPENAI).with_api_key(key).unwrap_err();
        assert!(!error.to_string().contains("cret"), "{error}");
    }
    for endpoint in ["/v1", "ftp://a.example", "https://me:pw@a.example/"] {
        let error = profile(Dialect::OPENAI).with_endpoint(endpoint.parse().unwrap()).unwrap_err();
        assert!(!error.to_string().contains("pw"), "{error}");
    }
}

#[test]
fn model_and_effort_are_set_where_each_dialect_has_them_and_every_other_byte_stays() {
    let cases = [
        (
            Dialect::OPENAI,
            "/v1/chat/completions",
            r#"{ "model" : "a", "n": 1.0 }"#,
            r#"{"reasoning_effort":"high", "model" : "new-model", "n": 1.0 }"#,
        ),
        (
            Dialect::OPENAI,
            "/v1/chat/completions",
            r#"{"reasoning_effort":"low","model":"a"}"#,
            r#"{"reasoning_effort":"high","model":"new-model"}"#,
        ),
        (
            Dialect::OPENAI,
            "/v1/responses",
            r#"{"model":"a","reasoning":{"summary":"auto"}}"#,
            r#"{"model":"new-model","reasoning":{"effort":"high","summary":"auto"}}"#,
        ),
        (
            Dialect::OPENAI,
            "/v1/responses",
            r#"{"model":"a","reasoning":null}"#,
            r#"{"model":"new-model","reasoning":{"effort":"high"}}"#,
        ),
        (Dialect::OPENAI, "/v1/embeddings", r#"{"model":"a"}"#, r#"{"model":"new-model"}"#),
        (
            Dialect::ANTHROPIC,
            "/v1/messages",
            r#"{"model":"a"}"#,
            r#"{"output_config":{"effort":"high"},"model":"new-model"}"#,
        ),
        (
            Dialect::GEMINI,
            "/v1beta/models/a:generateContent",
            r#"{"contents":[]}"#,
            r#"{"generationConfig":{"thinkingConfig":{"thinkingLevel":"high"}},"contents":[]}"#,
        ),
        (
            Dialect::GEMINI,
            "/v1beta/models/a:streamGenerateContent",
            r#"{"model":"models/a","generationConfig":{"thinkingConfig":{"thinkingLevel":"low"}}}"#,
            r#"{"model":"models/new-model","generationConfig":{"thinkingConfig":{"thinkingLevel":"high"}}}"#,
        ),
    ];
    for (dialect, path, body, expected) in cases {
        let profile = profile(dialect).with_reasoning("high");
        let mut request = post(path, body);
        let length = HeaderValue::from(body.len());
        request.headers_mut().insert("content-length", length);
        request.headers_mut().insert("content-digest", HeaderValue::from_static("sha-256=:x:"));
        apply(&mut request, &profile, Place::Fallback).unwrap();
        assert_eq!(text(&request), expected, "{path}");
        assert_eq!(request.headers()["content-length"], expected.len().to_string());
        assert!(!request.headers().contains_key("content-digest"));
        if dialect == Dialect::GEMINI {
            assert!(request.uri().path().contains("/models/new-model:"), "{}", request.uri());
        }
        // Once more changes nothing.
        let (uri, pieces) = (request.uri().clone(), text(&request));
        apply(&mut request, &profile, Place::Fallback).unwrap();
        assert_eq!((request.uri(), text(&request)), (&uri, pieces));
    }
}

#[test]
fn a_body_without_a_model_goes_to_the_primary_as_it_is_and_to_no_fallback() {
    for body in
        ["", "not json", "[]", "{}", r#"{"model":"a","model":"b"}"#, r#"{"x":{"model":"a"}}"#]
    {
        let mut request = post("/v1/chat/completions", body);
        request.headers_mut().insert("content-digest", HeaderValue::from_static("sha-256=:x:"));
        apply(&mut request, &profile(Dialect::OPENAI), Place::Primary).unwrap();
        assert_eq!(text(&request), body);
        assert!(request.headers().contains_key("content-digest"), "the body is the same");
        let error = apply(&mut request, &profile(Dialect::OPENAI), Place::Fallback).unwrap_err();
        assert!(matches!(error, Unfit::NoModel { .. }), "{body}: {error}");
    }
    let mut request = post("/v1/files", "x");
    assert!(apply(&mut request, &profile(Dialect::GEMINI), Place::Fallback).is_err());
    let mut list = Request::get("/v1/models").body(RequestBody::empty()).unwrap();
    apply(&mut list, &profile(Dialect::OPENAI), Place::Fallback).unwrap();
}

#[test]
fn the_original_makes_the_same_request_again_and_again() {
    let mut request = post("https://a.example/v1/chat/completions", r#"{"model":"a"}"#);
    request.headers_mut().append("x-a", HeaderValue::from_static("1"));
    request.headers_mut().append("x-a", HeaderValue::from_static("2"));
    let original = Original::of(&request);
    for model in ["b", "c"] {
        let mut again = original.request();
        assert_eq!((again.uri(), again.headers()), (request.uri(), request.headers()));
        assert_eq!(text(&again), r#"{"model":"a"}"#);
        let profile = Profile::new("p", model, "q", Dialect::OPENAI).unwrap();
        apply(&mut again, &profile, Place::Fallback).unwrap();
        assert_eq!(text(&again), format!(r#"{{"model":"{model}"}}"#));
    }
}

#[test]
fn what_keeps_the_original_goes_away_with_its_call() {
    let mut request = post("/v1/chat/completions", r#"{"model":"a"}"#);
    let mark = std::sync::Arc::new(());
    let context = CallContext::new(crate::CallOptions::new(), None, None);
    request.extensions_mut().insert(context.clone());
    request.extensions_mut().insert(mark.clone());
    let context = context.keeping(Original::of(&request), true);
    let again = context.request_again().unwrap().unwrap();
    assert!(CallContext::of(&again).is_some());
    assert!(again.extensions().get::<std::sync::Arc<()>>().is_some(), "the caller's own go along");
    drop((request, context, again));
    assert_eq!(std::sync::Arc::strong_count(&mark), 1, "nothing holds itself");
}

proptest! {
    #[test]
    fn no_path_or_query_breaks_the_address_and_the_key_never_passes(
        path in "/[a-z0-9%:./_~-]{0,30}", query in "[a-zA-Z0-9%=&_-]{0,30}", prefix in "(/[a-z0-9]{1,6}){0,3}/?"
    ) {
        let uri = format!("https://a.example{path}?{query}&key=SECRET");
        let Ok(uri) = uri.parse::<Uri>() else { return Ok(()) };
        let endpoint: Uri = format!("https://b.example{prefix}").parse().unwrap();
        for dialect in Dialect::ALL {
            let profile = profile(*dialect).with_endpoint(endpoint.clone()).unwrap().without_api_key();
            let mut request = post("/", r#"{"model":"m"}"#);
            *request.uri_mut() = uri.clone();
            apply(&mut request, &profile, Place::Primary).unwrap();
            prop_assert_eq!(request.uri().host(), Some("b.example"));
            prop_assert!(request.uri().path().starts_with(prefix.trim_end_matches('/')));
            prop_assert!(!request.uri().to_string().contains("SECRET"), "{}", request.uri());
        }
    }
}
