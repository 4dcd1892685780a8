//! An evaluation's rules, as its authors wrote them: three tries on the primary, then one on the fallback;
//! no error text is read; and a run in which fallback is forbidden fails closed.
//!
//! `cargo run --example agnostic_eval --features testing`

use std::time::Duration;

use backstop::dialect::Dialect;
use backstop::stack::StackService;
use backstop::testing::{Answer, BoxError, ScriptedProvider, script};
use backstop::{
    CallOptions, Chain, Error, Hold, Profile, Provenance, RequestBody, Rung, Schedule, Stack,
};
use http::Request;
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tower::{Layer, ServiceExt};

type Llm = StackService<Client<HttpConnector, RequestBody>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let refused = || script::openai::error(400, "invalid_request_error", "invalid_prompt");
    let provider = ScriptedProvider::start(vec![
        // A stochastic refusal: nothing was generated, and the same prompt succeeds on repeat.
        refused(),
        script::openai::chat("gpt-5.6-sol", "42"),
        // A persistent failure of the primary: three tries, then the fallback's one.
        refused(),
        Answer::status(503),
        Answer::nothing().reset(),
        script::openai::chat("gpt-5.5", "42"),
        // The same in the run that forbids fallback: its chain is the primary alone.
        refused(),
        Answer::status(503),
        Answer::nothing().reset(),
    ])
    .await?;

    // agents = ["sol-xhigh", "gpt55-xhigh"], same_agent_attempts = 3
    let profile = |id: &str, model: &str| {
        let profile = Profile::new(id, model, "openai", Dialect::OPENAI)?;
        Ok::<_, BoxError>(profile.with_agent("CodexAgent").with_reasoning("xhigh"))
    };
    let primary = Rung::new(profile("sol-xhigh", "gpt-5.6-sol")?, 3)?;
    let fallback = Rung::new(profile("gpt55-xhigh", "gpt-5.5")?, 1)?;
    let chain = Chain::new([primary.clone(), fallback])?;
    println!("planned: {:?}", chain.expanded().map(Profile::id).collect::<Vec<_>>());

    let client = Client::builder(TokioExecutor::new())
        .retry_canceled_requests(false)
        .build_http::<RequestBody>();
    let builder = |chain: Chain| {
        let quick = Schedule::new(Duration::from_millis(20), Duration::from_secs(60));
        // Whether an attempt failed is told from status, transport and grammar; half an answer is none.
        Stack::builder(chain).agnostic().hold(Hold::Complete).backoff(|own| own.schedule(quick))
    };
    let llm = builder(chain.clone()).build()?.layer(client.clone());

    println!("\nnode-1: a refusal that does not come twice");
    let first = ask(&llm, &provider.url(), CallOptions::new().node("node-1")).await?;
    println!("\nnode-2: a primary that stays down");
    let second = ask(&llm, &provider.url(), CallOptions::new().node("node-2")).await?;
    assert_eq!((first, second), (Some(false), Some(true)), "a fallback only where it was needed");

    println!("\nrun `benchmark` forbids fallback, and its chain declares one:");
    let forbidden = CallOptions::new().run("benchmark").node("node-3").forbid_fallback();
    let before = provider.requests();
    let closed = ask(&llm, &provider.url(), forbidden).await;
    assert!(matches!(closed, Err(Error::Refused { .. })), "it fails closed");
    assert_eq!(provider.requests(), before, "and nothing was sent");
    println!("declared in the settings, it is refused when the stack is built:");
    match builder(chain).forbid_fallback().build() {
        Ok(_) => return Err("a stack that must not be".into()),
        Err(error) => println!("  {error}"),
    }

    println!("\nwith the primary alone it runs, and ends with the original diagnostic:");
    let alone = builder(Chain::new([primary])?).forbid_fallback().build()?.layer(client);
    let outcome = ask(&alone, &provider.url(), CallOptions::new().run("benchmark")).await;
    assert!(outcome.is_err(), "no answer is better than somebody else's");
    println!("\nthe provider saw {} requests", provider.requests());
    Ok(())
}

/// Asks once, and says whether a fallback answered; `None` where nobody did.
async fn ask(llm: &Llm, url: &str, options: CallOptions) -> Result<Option<bool>, Error> {
    let mut request =
        Request::post(format!("{url}/v1/chat/completions")).body(RequestBody::from(PROMPT));
    let who = Provenance::new();
    if let Ok(request) = &mut request {
        request.extensions_mut().insert(options);
        // Kept here, it tells of calls that end with an error, too.
        request.extensions_mut().insert(who.clone());
    }
    let request = request.map_err(|error| Error::refused(error.to_string()))?;
    let answer = match llm.clone().oneshot(request).await {
        Ok(response) => response.into_body().collect().await.map(|_| ()),
        Err(error) => Err(error),
    };
    println!(
        "  {:?} after {} attempts; {}",
        who.outcome(),
        who.attempts(),
        match &answer {
            Ok(()) => format!("produced by {:?}", who.profile().map(|own| own.id().to_owned())),
            Err(error) => error.to_string(),
        }
    );
    answer.map(|()| Some(who.fallback_used()))
}

const PROMPT: &str = r#"{"model":"any","messages":[{"role":"user","content":"6 x 7?"}]}"#;
