use backstop_core::dialect::{Dialect, Endpoint, ModelPlace, Route, is_stateful};
use http::{HeaderMap, HeaderValue, Method, Uri};

fn uri(text: &str) -> Uri {
    text.parse().unwrap()
}

#[test]
fn the_path_tells_the_dialect_whatever_stands_before_it() {
    use Endpoint as E;
    for (path, dialect, endpoint) in [
        ("/v1/chat/completions", "openai", E::ChatCompletions),
        ("https://x.example/prefix/openai/v1/chat/completions?a=b", "openai", E::ChatCompletions),
        ("/openai/deployments/d/chat/completions?api-version=1", "openai", E::ChatCompletions),
        ("/v1/responses", "openai", E::Responses),
        ("/v1/embeddings/", "openai", E::Embeddings),
        ("/v1/completions", "openai", E::Completions),
        ("/v1/messages", "anthropic", E::Messages),
        ("/v1/messages?beta=true", "anthropic", E::Messages),
        ("/v1/messages/count_tokens", "anthropic", E::CountTokens),
        ("/v1beta/models/m:generateContent", "gemini", E::GenerateContent),
        ("/v1/models/m:generateContent?key=k", "gemini", E::GenerateContent),
        ("/v1beta/models/m%3AstreamGenerateContent", "gemini", E::StreamArray),
        (
            "/v1beta/models/m:streamGenerateContent?key=k&alt=sse",
            "gemini",
            E::StreamGenerateContent,
        ),
        ("/v1beta/tunedModels/m:embedContent", "gemini", E::Embeddings),
        ("/v1beta/models/m:batchEmbedContents", "gemini", E::Embeddings),
        ("/v1beta/models/a:b:countTokens", "gemini", E::CountTokens),
        ("/v1beta/openai/chat/completions", "openai", E::ChatCompletions),
    ] {
        let route = Route::of_request(&Method::POST, &uri(path), &HeaderMap::new());
        assert_eq!(route.dialect().map(Dialect::name), Some(dialect), "{path}");
        assert_eq!(route.endpoint(), endpoint, "{path}");
        assert_eq!(Route::new(route.dialect().unwrap(), &Method::POST, &uri(path)), route);
    }
    for path in [
        "/",
        "/v1/models",
        "/v1/threads/t/messages",
        "/models/m:other",
        "/models/:generateContent",
        "/xmodels/m:generateContent",
        "/v1/mychat/completionsx",
    ] {
        let route = Route::of_request(&Method::POST, &uri(path), &HeaderMap::new());
        assert_eq!(route, Route::UNKNOWN, "{path}");
    }
}

/// `GET /v1/chat/completions` lists what is stored, `HEAD` and `OPTIONS` answer with no body.
#[test]
fn only_what_is_posted_is_generated() {
    for path in [
        "/v1/chat/completions",
        "/v1/organization/usage/completions",
        "/v1/responses",
        "/v1/messages",
        "/v1beta/models/m:generateContent",
    ] {
        let posted = Route::of_request(&Method::POST, &uri(path), &HeaderMap::new());
        for method in ["GET", "HEAD", "OPTIONS", "DELETE", "PUT", "post", "QUERY"] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let route = Route::of_request(&method, &uri(path), &HeaderMap::new());
            assert_eq!(route.dialect(), posted.dialect(), "errors are understood: {method} {path}");
            assert_eq!(route.endpoint(), Endpoint::Other, "{method} {path}");
            assert_eq!(Route::new(route.dialect().unwrap(), &method, &uri(path)), route);
        }
    }
}

#[test]
fn a_header_tells_the_dialect_where_the_path_does_not() {
    let mut headers = HeaderMap::new();
    headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
    let dialect = |path| Route::of_request(&Method::GET, &uri(path), &headers).dialect();
    assert_eq!(dialect("/v1/models"), Some(Dialect::ANTHROPIC));
    assert_eq!(dialect("/v1/chat/completions"), Some(Dialect::OPENAI));
}

#[test]
fn names_lead_back_to_their_dialects() {
    for dialect in Dialect::ALL {
        assert_eq!(Dialect::from_name(dialect.name()), Some(*dialect));
        assert_eq!(dialect.to_string(), dialect.name());
    }
    assert_eq!(Dialect::from_name("OpenAI"), None);
    assert!(Dialect::ALL.windows(2).all(|pair| pair[0].name() < pair[1].name()));
}

#[test]
fn the_model_is_found_in_body_or_path() {
    let none = uri("/v1/chat/completions");
    let model = |body: &[u8]| Dialect::OPENAI.requested_model(&none, body).map(|m| m.into_owned());
    assert_eq!(Dialect::OPENAI.model_place(), ModelPlace::Body);
    assert_eq!(
        model(br#"{"messages":[{"model":"no"}],"mod\u0065l":"gpt"}"#).as_deref(),
        Some("gpt")
    );
    for body in [
        &b"{}"[..],
        b"",
        b"[]",
        br#"{"model":7}"#,
        br#"{"model":"a","model":"a"}"#,
        br#"{"model":"a""#,
    ] {
        assert_eq!(model(body), None, "{}", String::from_utf8_lossy(body));
    }
    let path = uri("/v1beta/models/gemini%2D2%2fx%20y:generateContent");
    assert_eq!(Dialect::GEMINI.model_place(), ModelPlace::Path);
    assert_eq!(Dialect::GEMINI.requested_model(&path, b"").as_deref(), Some("gemini-2/x y"));
    assert_eq!(Dialect::GEMINI.requested_model(&uri("/models/%ff:generateContent"), b""), None);
    assert_eq!(
        Dialect::GEMINI.requested_model(&uri("/models/a%:generateContent"), b"").as_deref(),
        Some("a%")
    );
}

#[test]
fn another_model_is_put_in_the_path() {
    let changed = |path: &str, model: &str| {
        Dialect::GEMINI.with_model_in_path(&uri(path), model).map(|u| u.to_string())
    };
    assert_eq!(
        changed(
            "https://h.example:8443/p/v1beta/models/old:streamGenerateContent?alt=sse&key=k",
            "new-1.5"
        )
        .as_deref(),
        Some("https://h.example:8443/p/v1beta/models/new-1.5:streamGenerateContent?alt=sse&key=k")
    );
    assert_eq!(
        changed("/models/old:generateContent", "a/b:c %ü@1").as_deref(),
        Some("/models/a%2Fb%3Ac%20%25%C3%BC@1:generateContent")
    );
    assert_eq!(
        changed("/models/old:generateContent", "").as_deref(),
        Some("/models/:generateContent")
    );
    assert_eq!(changed("/v1/models", "new"), None);
    assert_eq!(Dialect::OPENAI.with_model_in_path(&uri("/models/a:generateContent"), "b"), None);
    for model in ["a/b:c %ü@1", "gemini-2.5-pro", "models?x#y&z"] {
        let changed = Dialect::GEMINI
            .with_model_in_path(&uri("/models/old:generateContent?q"), model)
            .unwrap();
        assert_eq!(Dialect::GEMINI.requested_model(&changed, b"").as_deref(), Some(model));
        assert_eq!(changed.query(), Some("q"));
    }
}

#[test]
fn reasoning_has_a_place_per_endpoint() {
    let keys = |dialect: Dialect, endpoint| {
        dialect.reasoning_place(endpoint).map(|place| place.keys().join("."))
    };
    assert_eq!(
        keys(Dialect::OPENAI, Endpoint::ChatCompletions).as_deref(),
        Some("reasoning_effort")
    );
    assert_eq!(keys(Dialect::OPENAI, Endpoint::Responses).as_deref(), Some("reasoning.effort"));
    assert_eq!(keys(Dialect::OPENAI, Endpoint::Embeddings), None);
    assert_eq!(
        keys(Dialect::ANTHROPIC, Endpoint::Messages).as_deref(),
        Some("output_config.effort")
    );
    assert_eq!(
        keys(Dialect::GEMINI, Endpoint::GenerateContent).as_deref(),
        Some("generationConfig.thinkingConfig.thinkingLevel")
    );
    assert_eq!(keys(Dialect::GEMINI, Endpoint::CountTokens), None);
}

#[test]
fn a_request_that_continues_state_is_known() {
    for body in [
        &br#"{"previous_response_id":"r"}"#[..],
        br#"{"conversation":{"id":"c"}}"#,
        br#"{"conversation":"c"}"#,
        br#"{"background":true}"#,
        br#"{"previous\u005fresponse_id":"r"}"#,
        b"\xEF\xBB\xBF {\"background\" : true}",
        // Which of two counts is the server's business.
        br#"{"conversation":"c","conversation":null}"#,
        br#"{"background":true,"background":false}"#,
        // What cannot be read may be readable elsewhere.
        br#"{"background":true"#,
        br#"{"x":01,"previous_response_id":"r"}"#,
        br#"{"x":'y', "conversation":"c"}"#,
        b"\xef\xbb\xbf {\"conversation\":\"c\"",
    ] {
        assert!(is_stateful(body), "{}", String::from_utf8_lossy(body));
    }
    for body in [
        &br#"{"previous_response_id":null,"conversation":null,"background":false}"#[..],
        br#"{"input":[{"previous_response_id":"r"}],"background":"true"}"#,
        b"not json",
        b"--b\r\n\r\n{\"conversation\":\"c\"}\r\n--b--",
        b"",
    ] {
        assert!(!is_stateful(body), "{}", String::from_utf8_lossy(body));
    }
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let body = |state| format!(r#"{{"input":{deep},"tools":[{{"conversation":"c"}}]{state}}}"#);
    assert!(is_stateful(body(r#","previous_response_id":"r""#).as_bytes()), "however deep");
    assert!(!is_stateful(body("").as_bytes()));
    assert!(!is_stateful(body(r#","background":false"#).as_bytes()));
}

#[test]
fn credentials_are_known_and_made_sensitive() {
    for dialect in Dialect::ALL {
        let header = dialect.credential_header();
        assert!(Dialect::credential_headers().contains(&header.as_str()), "{header}");
        let value = dialect.credential("k-1").unwrap();
        assert!(value.is_sensitive());
        assert!(value.to_str().unwrap().ends_with("k-1"));
        assert_eq!(dialect.credential("k\n1"), None);
    }
    assert_eq!(Dialect::OPENAI.credential("k").unwrap(), "Bearer k");
    assert_eq!(Dialect::OPENAI.credential_scheme(), Some("Bearer"));
    for name in [
        "authorization",
        "x-api-key",
        "api-key",
        "x-goog-api-key",
        "x-amz-security-token",
        "proxy-authorization",
        "cookie",
        "openai-organization",
        "openai-project",
    ] {
        assert!(Dialect::credential_headers().contains(&name), "{name}");
    }
    assert!(
        Dialect::credential_headers()
            .iter()
            .all(|name| http::HeaderName::from_lowercase(name.as_bytes()).is_ok())
    );
    assert!(Dialect::is_credential_query("KEY") && Dialect::is_credential_query("x-amz-signature"));
    assert!(!Dialect::is_credential_query("alt"));
    assert!(Dialect::credential_query().contains(&"access_token"));
}

#[test]
fn a_judge_can_cross_threads() {
    fn crosses<T: Send + Sync + Unpin + 'static>() {}
    crosses::<backstop_core::dialect::Judge>();
}
