//! What a stack adds to a call that succeeds at once, beside `tower-resilience`'s fallback, retry and circuit
//! breaker, in turns.
//!
//! `cargo bench --bench stack`. Times as in `--bench beside`; then what one call allocates.
//! `cargo bench --bench stack -- --once NAME` makes 10 000 calls of one stack and nothing else, for a tool
//! that counts instructions.

use std::convert::Infallible;
use std::io::Write;

use backstop::Stack;
use backstop::provenance::MemoryLedger;
use backstop_backoff::BackoffLayer;
use backstop_benches::turns::{Length, Turn, call, compare, turn};
use backstop_benches::{Answer, Provider, headers_only, request};
use backstop_classify::ClassifyLayer;
use backstop_core::dialect::Dialect;
use backstop_core::error::ConfigError;
use backstop_core::{Chain, Profile, RequestBody, Rung};
use backstop_fallback::FallbackRouterLayer;
use http::{Request, Response};
use tower::{Layer, Service};
use tower_resilience_circuitbreaker::{CircuitBreakerError, CircuitBreakerLayer};
use tower_resilience_fallback::FallbackLayer;
use tower_resilience_retry::RetryLayer;

type BoxError = Box<dyn std::error::Error>;

fn main() -> Result<(), BoxError> {
    let mut args = std::env::args().skip_while(|arg| arg != "--once").skip(1);
    if let Some(name) = args.next() {
        return once(&name);
    }
    measure("a request just built", &request)?;
    let template = request();
    measure("a cloned request, its header values shared", &|| template.clone())?;
    allocations()
}

/// Does the macro `$what` with the name and the service of each stack.
macro_rules! each_stack {
    ($what:ident) => {
        $what!("bare", Provider::new());
        $what!("tower-resilience", tower_resilience()?);
        $what!("router + backoff + classify (headers)", headers_stack()?);
        $what!("router + backoff + classify", judging_stack()?);
        $what!("whole stack, no ledger", whole_stack()?);
        $what!("whole stack, ledger in memory", recording_stack()?);
    };
}

/// Three tries, a breaker below, and an empty answer where all fail.
fn tower_resilience() -> Result<impl Service<Request<RequestBody>>, BoxError> {
    type Broken = CircuitBreakerError<Infallible>;
    let breaker =
        CircuitBreakerLayer::builder().failure_rate_threshold(0.5).sliding_window_size(100);
    let retry = RetryLayer::<Request<RequestBody>, Answer, Broken>::builder().max_attempts(3);
    let fallback =
        FallbackLayer::<Request<RequestBody>, Answer, Broken>::value(Response::default());
    Ok(fallback.layer(retry.build().layer(breaker.build()?.layer(Provider::new()))))
}

/// Three attempts on a primary, one on a fallback; the model of each is another one than was asked for.
fn chain() -> Result<Chain, ConfigError> {
    let profile = |id: &str| Profile::new(id, format!("model-{id}"), id, Dialect::OPENAI);
    Chain::new([Rung::new(profile("sol")?, 3)?, Rung::new(profile("gpt")?, 1)?])
}

fn router() -> Result<FallbackRouterLayer, ConfigError> {
    FallbackRouterLayer::builder(chain()?).share_original(true).build()
}

fn headers_stack() -> Result<impl Service<Request<RequestBody>>, ConfigError> {
    Ok(router()?.layer(BackoffLayer::new().layer(headers_only().layer(Provider::new()))))
}

fn judging_stack() -> Result<impl Service<Request<RequestBody>>, ConfigError> {
    Ok(router()?.layer(BackoffLayer::new().layer(ClassifyLayer::new().layer(Provider::new()))))
}

fn whole_stack() -> Result<impl Service<Request<RequestBody>>, ConfigError> {
    Ok(Stack::new(chain()?).layer(Provider::new()))
}

fn recording_stack() -> Result<impl Service<Request<RequestBody>>, ConfigError> {
    // Small, so that it is full when the turns begin: what it drops is part of what it costs.
    let ledger = MemoryLedger::with_capacity(1_000);
    Ok(Stack::builder(chain()?).ledger(ledger).build()?.layer(Provider::new()))
}

fn measure(what: &str, request: &dyn Fn() -> Request<RequestBody>) -> Result<(), BoxError> {
    let length = Length::of_this_run();
    let mut stacks: Vec<(&str, Turn<'_>)> = Vec::new();
    macro_rules! take_turns {
        ($name:expr, $service:expr) => {
            stacks.push(($name, turn($service, length, request)))
        };
    }
    each_stack!(take_turns);
    compare(what, length, stacks)?;
    Ok(())
}

fn allocations() -> Result<(), BoxError> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nallocations of one call, the request's own and the answer's included")?;
    macro_rules! count {
        ($name:expr, $service:expr) => {{
            let mut service = $service;
            call(&mut service, request());
            let cost = allocation_counter::measure(|| {
                call(&mut service, request());
            });
            writeln!(out, "{:40} {:4} ({} bytes)", $name, cost.count_total, cost.bytes_total)?;
        }};
    }
    each_stack!(count);
    Ok(())
}

fn once(wanted: &str) -> Result<(), BoxError> {
    let template = request();
    macro_rules! repeat {
        ($name:expr, $service:expr) => {
            if $name == wanted {
                let mut service = $service;
                for _ in 0..10_000 {
                    call(&mut service, template.clone());
                }
            }
        };
    }
    each_stack!(repeat);
    Ok(())
}
