use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use backstop_core::dialect::{Dialect, Mode};
use backstop_core::error::ConfigError;
use backstop_core::{BufferLimit, Hold, WallClock};
use tokio::time::Instant;

use crate::classifier::Classify;
use crate::clocks::Timeouts;
use crate::layer::ClassifyLayer;

/// What happens to an answer that is longer than `hold_limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HoldOverflow {
    /// It is handed on as it comes from there; what fails later reaches the caller as an abnormal
    /// end.
    Commit,
    /// The attempt counts as failed: who asked for whole answers gets none in part. Its class is
    /// `too_large`, which by default is not retried: the next answer would be as long.
    Fail,
}

/// Builds a [`ClassifyLayer`]; every setting has a default, so that an empty builder is good.
///
/// Settings that make no sense are an error of [`ClassifyBuilder::build`], never of the first call.
#[derive(Clone, Debug)]
#[must_use]
pub struct ClassifyBuilder {
    config: Config,
}

pub(crate) struct Config {
    pub(crate) mode: Mode,
    pub(crate) dialect: Option<Dialect>,
    pub(crate) hold: Hold,
    hold_limit: Option<u64>,
    hold_overflow: Option<HoldOverflow>,
    pub(crate) buffer_limit: Option<BufferLimit>,
    pub(crate) timeouts: Timeouts,
    pub(crate) classifier: Option<Arc<dyn Classify>>,
    pub(crate) clock: WallClock,
}

impl Clone for Config {
    #[inline]
    fn clone(&self) -> Self {
        let (buffer_limit, classifier) = (self.buffer_limit.clone(), self.classifier.clone());
        Self { buffer_limit, classifier, ..*self }
    }
}

impl Config {
    /// How much of an answer is held at most.
    pub(crate) fn hold_limit(&self, hold: Hold, is_stream: bool) -> u64 {
        self.hold_limit.unwrap_or(match hold {
            Hold::FirstContent if is_stream => FIRST_CONTENT_LIMIT,
            _ => COMPLETE_LIMIT,
        })
    }

    /// What is done past the limit.
    pub(crate) fn hold_overflow(&self, hold: Hold, is_stream: bool) -> HoldOverflow {
        self.hold_overflow.unwrap_or(match hold {
            Hold::Complete if is_stream => HoldOverflow::Fail,
            _ => HoldOverflow::Commit,
        })
    }
}

impl ClassifyBuilder {
    pub(crate) fn new() -> Self {
        Self {
            config: Config {
                mode: Mode::Provider,
                dialect: None,
                hold: Hold::FirstContent,
                hold_limit: None,
                hold_overflow: None,
                buffer_limit: None,
                timeouts: Timeouts::new(),
                classifier: None,
                clock: system_clock(),
            },
        }
    }

    /// Decides *whether* an attempt failed from transport, status and the grammar of the answer
    /// alone, never from the text or code of an error: every failure is `transient`, but for
    /// statuses that mean a configuration fault (401, 403, 404, 405), which are `invalid_request`.
    /// Document B's rule.
    ///
    /// Default: the dialects' own codes decide.
    pub fn agnostic(mut self) -> Self {
        self.config.mode = Mode::Agnostic;
        self
    }

    /// The dialect of every call. Default: told from each request's path.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.config.dialect = Some(dialect);
        self
    }

    /// How long an answer is held back. Default [`Hold::FirstContent`]: a stream until its first
    /// content, anything else until it is complete.
    pub fn hold(mut self, hold: Hold) -> Self {
        self.config.hold = hold;
        self
    }

    /// How many bytes of an answer are held at most. Default 256 KiB until the first content, 32 MiB
    /// for whole answers.
    pub fn hold_limit(mut self, bytes: u64) -> Self {
        self.config.hold_limit = Some(bytes);
        self
    }

    /// What is done past that limit. Default: [`HoldOverflow::Fail`] for streams under
    /// [`Hold::Complete`], else [`HoldOverflow::Commit`].
    pub fn hold_overflow(mut self, overflow: HoldOverflow) -> Self {
        self.config.hold_overflow = Some(overflow);
        self
    }

    /// A limit on what all calls together hold, to be shared with other layers. Default: none. An
    /// answer that finds no place is treated as one that is longer than `hold_limit`.
    pub fn buffer_limit(mut self, limit: BufferLimit) -> Self {
        self.config.buffer_limit = Some(limit);
        self
    }

    /// How long each phase of an attempt may take. Default [`Timeouts::new`].
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.config.timeouts = timeouts;
        self
    }

    /// A judgement of your own, over the built-in one. Default none.
    pub fn classifier(mut self, classifier: impl Classify + 'static) -> Self {
        self.config.classifier = Some(Arc::new(classifier));
        self
    }

    /// The wall clock against which dated hints are measured. Default: the system's at this moment,
    /// and tokio's clock from there.
    pub fn wall_clock(mut self, clock: WallClock) -> Self {
        self.config.clock = clock;
        self
    }

    /// Checks the settings and builds the layer.
    ///
    /// # Errors
    /// [`ConfigError`] names the setting, what is wrong with it and the mend: a timeout or a hold
    /// limit of zero.
    pub fn build(self) -> Result<ClassifyLayer, ConfigError> {
        self.config.timeouts.check()?;
        if self.config.hold_limit == Some(0) {
            return Err(ConfigError::new(
                "hold_limit",
                "is zero",
                "use hold = headers to hold nothing",
            ));
        }
        Ok(self.into_layer_unchecked())
    }

    pub(crate) fn into_layer_unchecked(self) -> ClassifyLayer {
        ClassifyLayer { config: self.config }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            mode,
            dialect,
            hold,
            hold_limit,
            hold_overflow,
            buffer_limit,
            timeouts,
            classifier,
            clock: _,
        } = self;
        f.debug_struct("Config")
            .field("mode", mode)
            .field("dialect", dialect)
            .field("hold", hold)
            .field("hold_limit", hold_limit)
            .field("hold_overflow", hold_overflow)
            .field("buffer_limit", &buffer_limit.as_ref().map(BufferLimit::limit))
            .field("timeouts", timeouts)
            .field("classifier", &classifier.is_some())
            .finish_non_exhaustive()
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place where wall time enters; injectable")]
fn system_clock() -> WallClock {
    WallClock::new(SystemTime::now(), Instant::now().into_std())
}

/// Preambles and keep-alives are some hundred bytes; a first event with content rarely more than
/// some kilobytes.
const FIRST_CONTENT_LIMIT: u64 = 256 * 1024;
/// As much as a request may have (Anthropic's limit); answers are far smaller.
const COMPLETE_LIMIT: u64 = 32 * 1024 * 1024;
