//! No provider ever sees a credential that is not its own.

use backstop::dialect::Dialect;
use backstop::testing::{Answer, Script, ScriptedProvider};
use backstop::{BackoffLayer, Chain, Error, FallbackRouterLayer, Profile, Rung, Schedule};
use tower::{Layer, ServiceExt};

use super::{chain, profile};
use crate::rig::{ASK, client, ms, post};

const FOREIGN: [&str; 6] = ["CLIENT-1", "CLIENT-2", "CLIENT-3", "CLIENT-4", "org-a", "s=1"];

fn with_credentials(url: &str) -> http::Request<backstop::RequestBody> {
    let mut request = post(format!("{url}/v1/chat/completions?key=CLIENT-4&x=1"), ASK);
    for (name, value) in [
        ("authorization", "Bearer CLIENT-1"),
        ("x-api-key", "CLIENT-2"),
        ("api-key", "CLIENT-3"),
        ("cookie", "s=1"),
        ("openai-organization", "org-a"),
        ("x-trace", "t-1"),
        ("accept", "application/json"),
    ] {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    request
}

/// Everything that a provider was sent, as text.
fn wire(provider: &ScriptedProvider) -> Vec<String> {
    let one = |request: backstop::testing::SeenRequest| {
        let headers = request.headers.iter().map(|(name, value)| {
            format!("{}: {}\n", name.to_lowercase(), String::from_utf8_lossy(value))
        });
        let body = String::from_utf8_lossy(&request.body).into_owned();
        format!("{} {}\n{}\n{body}", request.method, request.target, headers.collect::<String>())
    };
    provider.log().into_iter().map(one).collect()
}

async fn failing() -> ScriptedProvider {
    ScriptedProvider::start(Script::new([Answer::status(503)]).repeat_last()).await.unwrap()
}

#[tokio::test]
async fn three_rungs_on_three_hosts_see_each_their_own_and_nothing_else() {
    for shares in [false, true] {
        let (p, q, r) = (failing().await, failing().await, failing().await);
        let chain = chain([
            (profile("a", &p.url()), 2),
            (profile("b", &q.url()), 2),
            (profile("c", &r.url()), 2),
        ]);
        let router = FallbackRouterLayer::builder(chain).share_original(shares).build().unwrap();
        let quick = BackoffLayer::builder().schedule(Schedule::new(ms(1), ms(2))).build().unwrap();
        let stack = router.layer(quick.layer(client()));
        let answer = stack.oneshot(with_credentials("http://nobody.test")).await.unwrap();
        assert_eq!(answer.status(), 503);
        for (provider, own) in [(&p, "key-a"), (&q, "key-b"), (&r, "key-c")] {
            let wire = wire(provider);
            assert_eq!(wire.len(), 2);
            for request in wire {
                assert!(request.contains(&format!("authorization: Bearer {own}\n")), "{request}");
                let others = ["key-a", "key-b", "key-c"].into_iter().filter(|key| *key != own);
                for foreign in others.chain(FOREIGN) {
                    assert!(!request.contains(foreign), "{foreign} in {request}");
                }
                let host = format!("host: {}\n", provider.addr());
                assert!(request.contains(&host) && request.contains("x-trace: t-1\n"), "{request}");
                assert!(request.contains("/v1/chat/completions?x=1"), "{request}");
            }
        }
    }
}

/// B027: a fallback elsewhere is handed neither the primary's key nor the caller's.
#[tokio::test]
async fn b027_a_fallback_sees_its_own_key_or_none() {
    let (p, q, r) = (failing().await, failing().await, failing().await);
    let messages = |id: &str, url: &str| {
        Profile::new(id, "m", id, Dialect::ANTHROPIC).unwrap().with_endpoint(url.parse().unwrap())
    };
    let primary = || messages("p", &p.url()).unwrap().with_api_key("KEY-A").unwrap();
    let with_key = messages("q", &q.url()).unwrap().with_api_key("KEY-B").unwrap();
    let needs_none = messages("r", &r.url()).unwrap().without_api_key();
    for (fallback, provider, own) in [(with_key, &q, Some("KEY-B")), (needs_none, &r, None)] {
        let rungs = [Rung::new(primary(), 1).unwrap(), Rung::new(fallback, 1).unwrap()];
        let router = FallbackRouterLayer::new(Chain::new(rungs).unwrap());
        let mut request = with_credentials("http://nobody.test");
        *request.uri_mut() = "http://nobody.test/v1/messages?key=CLIENT-4".parse().unwrap();
        router.layer(client()).oneshot(request).await.unwrap();
        let seen = wire(provider).remove(0);
        match own {
            Some(own) => assert!(seen.contains(&format!("x-api-key: {own}\n")), "{seen}"),
            None => assert!(!seen.contains("x-api-key"), "{seen}"),
        }
        assert!(!seen.contains("authorization") && !seen.contains("KEY-A"), "{seen}");
        for foreign in FOREIGN {
            assert!(!seen.contains(foreign), "{foreign} in {seen}");
        }
        assert!(seen.contains("x-trace: t-1\n") && seen.contains("accept: application/json\n"));
    }
    for seen in wire(&p) {
        assert!(seen.contains("x-api-key: KEY-A\n") && !seen.contains("CLIENT"), "{seen}");
    }
}

/// B028: a key that is missing is an error before anything is sent, never the caller's in its place.
#[tokio::test]
async fn b028_a_missing_key_is_an_error_and_the_callers_goes_nowhere() {
    let (p, q) = (failing().await, failing().await);
    let keyless = || {
        let profile = Profile::new("q", "m", "provider-q", Dialect::OPENAI).unwrap();
        profile.with_endpoint(q.url().parse().unwrap()).unwrap()
    };
    let as_fallback = chain([(profile("p", &p.url()), 1), (keyless(), 1)]);
    for chain in [as_fallback, chain([(keyless(), 1)])] {
        let stack = FallbackRouterLayer::new(chain).layer(client());
        let error = stack.oneshot(with_credentials("http://nobody.test")).await.unwrap_err();
        assert!(matches!(error, Error::Misconfigured { .. }), "{error}");
        assert_eq!(error.status(), 500);
        let text = error.to_string();
        assert!(text.contains("provider-q") && !text.contains("CLIENT"), "{text}");
    }
    assert_eq!((p.connections(), q.connections()), (0, 0));
    for key in ["", " ", "\n"] {
        assert!(keyless().with_api_key(key).is_err());
    }
    let trimmed = chain([(keyless().with_api_key("KEY\n").unwrap(), 1)]);
    let stack = FallbackRouterLayer::new(trimmed).layer(client());
    stack.oneshot(with_credentials("http://nobody.test")).await.unwrap();
    assert!(wire(&q).remove(0).contains("authorization: Bearer KEY\n"));
    // Addressed by the caller itself, with its own key: that is what it is for.
    let stack = FallbackRouterLayer::new(chain([(keyless(), 1)])).layer(client());
    stack.oneshot(with_credentials(&q.url())).await.unwrap();
    assert!(wire(&q).remove(1).contains("authorization: Bearer CLIENT-1\n"));
}

/// B025: after the switch the request names the second model wherever its API has it.
#[tokio::test]
async fn b025_after_the_switch_no_request_names_the_first_model() {
    let busy = || ScriptedProvider::start(Script::new([Answer::status(429)]).repeat_last());
    let (p, q) = (busy().await.unwrap(), busy().await.unwrap());
    let gemini = |id: &str, model: &str, url: &str| {
        let profile = Profile::new(id, model, id, Dialect::GEMINI).unwrap();
        profile.with_endpoint(url.parse().unwrap()).unwrap().with_api_key(id).unwrap()
    };
    let chain = chain([
        (gemini("p", "model-a", &p.url()), 1),
        (gemini("q", "model-b", &format!("{}/v1beta", q.url())), 1),
    ]);
    let stack = FallbackRouterLayer::new(chain).layer(client());
    let body = r#"{"model":"models/alias-x","contents":[]}"#;
    stack
        .oneshot(post("http://nobody.test/v1beta/models/alias-x:generateContent", body))
        .await
        .unwrap();
    let (first, second) = (wire(&p).remove(0), wire(&q).remove(0));
    assert!(first.starts_with("POST /v1beta/models/model-a:generateContent"), "{first}");
    assert!(second.starts_with("POST /v1beta/models/model-b:generateContent"), "{second}");
    assert!(second.ends_with(r#"{"model":"models/model-b","contents":[]}"#), "{second}");
    for other in ["alias-x", "model-a"] {
        assert!(!second.contains(other), "{second}");
    }
    assert_eq!(p.requests(), 1, "after the switch the first server gets nothing more");
}
