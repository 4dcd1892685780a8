//! All layers in their order, over any client.
//!
//! ```
//! use backstop::dialect::Dialect;
//! use backstop::provenance::Provenance;
//! use backstop::{Chain, Profile, RequestBody, Rung, Stack};
//! use bytes::Bytes;
//! use http_body_util::{BodyExt, Full};
//! use tower::{Layer, ServiceExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let primary = Profile::new("sol", "gpt-5.6-sol", "openai", Dialect::OPENAI)?;
//! let fallback = Profile::new("gpt", "gpt-5.5", "openai", Dialect::OPENAI)?;
//! let stack = Stack::new(Chain::new([Rung::new(primary, 3)?, Rung::new(fallback, 1)?])?);
//!
//! // Any client; this one answers as the model that it was asked for.
//! let client = tower::service_fn(|request: http::Request<RequestBody>| async move {
//!     let asked = String::from_utf8_lossy(&request.body().to_bytes()).into_owned();
//!     let model = if asked.contains("gpt-5.6-sol") { "gpt-5.6-sol" } else { "gpt-5.5" };
//!     let answer = format!(
//!         r#"{{"model":"{model}","choices":[{{"message":{{"content":"hi"}},"finish_reason":"stop"}}]}}"#
//!     );
//!     http::Response::builder().body(Full::new(Bytes::from(answer)))
//! });
//! let request = http::Request::post("https://api.openai.com/v1/chat/completions")
//!     .body(Full::new(Bytes::from(r#"{"model":"any","messages":[]}"#)))?;
//! let response = stack.layer(client).oneshot(request).await?;
//! let who = Provenance::of(&response).ok_or("no provenance")?.clone();
//! response.into_body().collect().await?;
//! assert_eq!(who.reported_model(), Some("gpt-5.6-sol"));
//! assert_eq!((who.attempts(), who.fallback_used()), (1, false));
//! # Ok(())
//! # }
//! ```
//!
//! Rungs on hosts of their own say where, and with which key: [`Profile::with_endpoint`](crate::Profile::with_endpoint),
//! [`with_api_key`](crate::Profile::with_api_key) or [`without_api_key`](crate::Profile::without_api_key). The caller's own
//! credentials never go there.
//!
//! # The order
//!
//! ```text
//! ProvenanceLayer         opens the call's record, closes it with the outcome
//!   FallbackRouterLayer   walks the chain: model, endpoint and credential of each rung
//!     BackoffLayer        repeats one rung
//!       AttemptLayer      one record for each attempt
//!         ClassifyLayer   reads the answer far enough to be sure
//!           the client
//! ```
//!
//! What the stack hands on as a provider's failure carries `x-should-retry: false`: the official SDKs
//! retry by themselves, and retries must not multiply.
//!
//! The same can be written by hand with `tower::ServiceBuilder`, with other layers between. Then leave
//! [`share_original`](backstop_fallback::FallbackBuilder::share_original) off.

mod builder;
mod last_word;

pub use builder::StackBuilder;
pub use last_word::{LastWord, LastWordFuture};

use backstop_backoff::{Backoff, BackoffLayer};
use backstop_classify::{ClassifyLayer, ClassifyService};
use backstop_core::Chain;
use backstop_fallback::{FallbackRouter, FallbackRouterLayer};
use backstop_provenance::{
    AttemptLayer, AttemptService, Ledger, NoLedger, ProvenanceLayer, ProvenanceService,
};
use tower_layer::Layer;

/// All layers in their order, over any client. See the [module's page](self).
///
/// It is a layer itself; cloning shares the settings.
#[derive(Clone, Debug)]
#[must_use = "a stack does nothing until a client is put under it"]
pub struct Stack<L = NoLedger> {
    provenance: ProvenanceLayer<L>,
    router: FallbackRouterLayer,
    backoff: BackoffLayer,
    attempt: AttemptLayer<L>,
    classify: ClassifyLayer,
}

impl Stack {
    /// The stack for `chain` with every default, and without a ledger.
    pub fn new(chain: Chain) -> Self {
        Self {
            provenance: ProvenanceLayer::new(),
            router: builder::router(chain.clone()).build().unwrap_or_else(|_| {
                // The defaults make sense.
                FallbackRouterLayer::new(chain)
            }),
            backoff: BackoffLayer::new(),
            attempt: AttemptLayer::new(),
            classify: ClassifyLayer::new(),
        }
    }

    /// A builder with the defaults.
    pub fn builder(chain: Chain) -> StackBuilder {
        StackBuilder::new(chain)
    }
}

/// What a [`Stack`] makes of a client.
pub type StackService<S, L = NoLedger> =
    LastWord<ProvenanceService<FallbackRouter<Backoff<AttemptService<ClassifyService<S>, L>>>, L>>;

impl<S, L: Ledger> Layer<S> for Stack<L> {
    type Service = StackService<S, L>;

    fn layer(&self, client: S) -> StackService<S, L> {
        let Self { provenance, router, backoff, attempt, classify } = self;
        let attempts = backoff.layer(attempt.layer(classify.layer(client)));
        LastWord::new(provenance.layer(router.layer(attempts)))
    }
}
