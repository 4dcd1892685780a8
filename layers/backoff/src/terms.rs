use std::time::Instant;

use backstop_core::{Bounds, CallContext, CallOptions, Guards, OnExhausted, Rung};
use http::Extensions;

use crate::config::{Config, keeps_request};

/// What bounds one call beside the layer's settings.
#[derive(Default)]
pub(crate) struct Terms {
    /// The attempts of the call's rung, the first included.
    attempts: Option<u32>,
    pub(crate) deadline: Option<Instant>,
    /// What the call wants otherwise than the layer is set; rare.
    own: Option<Box<Own>>,
}

/// The settings as they are for one call.
struct Own {
    guards: Guards,
    on_exhausted: OnExhausted,
    retry_stateful: bool,
}

impl Terms {
    /// What the request's extensions, a layer above or the deadline set for this call; nothing, mostly.
    #[inline]
    pub(crate) fn of(config: &Config, extensions: &mut Extensions) -> Self {
        if config.deadline.is_none() && extensions.is_empty() {
            return Self::default();
        }
        Self::read(config, extensions)
    }

    fn read(config: &Config, extensions: &mut Extensions) -> Self {
        let context = extensions.get::<CallContext>();
        let options = match context {
            Some(context) => Some(context.options()),
            None => extensions.get::<CallOptions>(),
        };
        let mut terms = Self::default();
        if let Some(context) = context {
            let planned =
                context.chain().and_then(|chain| chain.rungs().get(context.rung() as usize));
            terms.attempts = planned.map(Rung::attempts);
            terms.deadline = context.deadline();
        }
        if let Some(options) = options {
            // The caller's number counts for the primary; a fallback has its own.
            if context.is_none_or(|context| context.rung() == 0) {
                terms.attempts = options.attempts().or(terms.attempts);
            }
            terms.own = Own::read(config, options);
        }
        let time = options.and_then(CallOptions::time).or(config.deadline);
        if let (None, Some(time)) = (terms.deadline, time) {
            let now = tokio::time::Instant::now();
            terms.deadline = now.checked_add(time).map(tokio::time::Instant::into_std);
            // The layers below must stop at the same instant.
            match (context, terms.deadline) {
                (Some(context), Some(deadline)) => context.set_deadline(deadline),
                (Some(_), None) => {}
                (None, deadline) => {
                    let options = options.cloned().unwrap_or_default();
                    let context = CallContext::new(options, Some(now.into_std()), deadline);
                    extensions.insert(context);
                }
            }
        }
        terms
    }

    /// Whether the call's deadline has come before it began.
    #[inline]
    pub(crate) fn are_late(&self) -> bool {
        self.deadline.is_some_and(|at| at <= tokio::time::Instant::now().into_std())
    }

    #[inline]
    pub(crate) fn keep_request(&self, config: &Config) -> bool {
        match &self.own {
            None if self.attempts.is_none_or(|attempts| attempts > 1) => config.keeps_request,
            _ => keeps_request(&self.bounds(config), self.on_exhausted(config)),
        }
    }

    pub(crate) fn on_exhausted(&self, config: &Config) -> OnExhausted {
        self.own.as_ref().map_or(config.on_exhausted, |own| own.on_exhausted)
    }

    pub(crate) fn retry_stateful(&self, config: &Config) -> bool {
        self.own.as_ref().map_or(config.retry_stateful, |own| own.retry_stateful)
    }

    pub(crate) fn bounds(&self, config: &Config) -> Bounds {
        let guards = self.own.as_ref().map_or(&config.bounds.guards, |own| &own.guards);
        let mut bounds = Bounds::new(guards.clone());
        bounds.attempts = self.attempts;
        bounds.deadline = self.deadline;
        bounds
    }
}

impl Own {
    fn read(config: &Config, options: &CallOptions) -> Option<Box<Self>> {
        let guards = options.guards(&config.bounds.guards);
        let (on_exhausted, stateful) = (options.exhaustion(), options.stateful());
        if guards == config.bounds.guards && on_exhausted.is_none() && stateful.is_none() {
            return None;
        }
        Some(Box::new(Self {
            guards,
            on_exhausted: on_exhausted.unwrap_or(config.on_exhausted),
            retry_stateful: stateful.unwrap_or(config.retry_stateful),
        }))
    }
}
