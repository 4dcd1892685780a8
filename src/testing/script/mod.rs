//! Scripts: what is answered in which order, and ready answers in the providers' dialects.
//!
//! The answers have fixed placeholder ids and times, the [`Usage`] of its `Default`, and `scripted error` for the
//! message of an error. They are [`Answer`](super::Answer)s like any other: headers can be added, streams can be cut,
//! paused and broken.
//!
//! ```
//! use std::time::Duration;
//! use backstop::testing::script::{anthropic, openai};
//!
//! // A 429 with a hint.
//! let limited = openai::error(429, "requests", "rate_limit_exceeded").header("retry-after", "3");
//! // A stream that breaks after its second text delta, events 50 ms apart.
//! let broken = anthropic::message_stream("model-a", ["The ", "quick ", "fox"])
//!     .cut_after_events(5)
//!     .pause_between(Duration::from_millis(50))
//!     .reset();
//! # let _ = (limited, broken);
//! ```

use std::{
    fmt::Write as _,
    sync::atomic::{AtomicUsize, Ordering},
};

pub mod anthropic;
pub mod gemini;
pub mod openai;

/// What an answer says it cost. Default: 12 tokens in, 5 out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Tokens of the prompt.
    pub input: u64,
    /// Tokens of the answer.
    pub output: u64,
}

/// Things to hand out one by one, and what to do when none is left.
///
/// Anything that takes a script takes an array or a `Vec` as well; the type is needed to say what comes after the
/// last item.
///
/// ```
/// use backstop::testing::{Outcome, Script};
///
/// let script = Script::new([Outcome::status(503), Outcome::status(200)]).repeat_last();
/// assert_eq!(script.remaining(), 2);
/// ```
#[derive(Debug)]
#[must_use]
pub struct Script<T> {
    items: Vec<T>,
    after: After<T>,
    cursor: AtomicUsize,
}

/// What comes when the items are used up.
#[derive(Debug)]
enum After<T> {
    /// Nothing: the double says so in its answer, and counts.
    Exhausted,
    /// The last item again; nothing where there is none.
    RepeatLast,
    /// This one, as often as asked.
    Then(T),
}

impl<T> Script<T> {
    /// These items, once each, in this order.
    pub fn new(items: impl IntoIterator<Item = T>) -> Self {
        Self {
            items: items.into_iter().collect(),
            after: After::Exhausted,
            cursor: AtomicUsize::new(0),
        }
    }

    /// When the items are used up, hands out the last one again and again.
    pub fn repeat_last(mut self) -> Self {
        self.after = After::RepeatLast;
        self
    }

    /// When the items are used up, hands out `item` again and again.
    pub fn then(mut self, item: T) -> Self {
        self.after = After::Then(item);
        self
    }

    /// How many of the items have not been handed out yet.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.items.len().saturating_sub(self.cursor.load(Ordering::Relaxed))
    }
}

impl<T: Clone> Script<T> {
    /// The next item; `None` when the script is exhausted.
    pub(super) fn take(&self) -> Option<T> {
        let n = self.cursor.fetch_add(1, Ordering::Relaxed);
        self.at(n).cloned()
    }

    /// The next item, if `wanted` says so of it; else it stays the next one.
    pub(super) fn take_if(&self, wanted: impl Fn(&T) -> bool) -> Option<T> {
        let mut n = self.cursor.load(Ordering::Relaxed);
        loop {
            let item = self.at(n).filter(|item| wanted(item))?;
            match self.cursor.compare_exchange_weak(n, n + 1, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return Some(item.clone()),
                Err(now) => n = now,
            }
        }
    }

    fn at(&self, n: usize) -> Option<&T> {
        self.items.get(n).or_else(|| match &self.after {
            After::Exhausted => None,
            After::RepeatLast => self.items.last(),
            After::Then(item) => Some(item),
        })
    }
}

impl<T> Default for Script<T> {
    fn default() -> Self {
        Self { items: Vec::new(), after: After::Exhausted, cursor: AtomicUsize::new(0) }
    }
}

impl<T, U: Into<T>> From<Vec<U>> for Script<T> {
    fn from(items: Vec<U>) -> Self {
        Self::new(items.into_iter().map(Into::into))
    }
}

impl<T, U: Into<T>, const N: usize> From<[U; N]> for Script<T> {
    fn from(items: [U; N]) -> Self {
        Self::new(items.into_iter().map(Into::into))
    }
}

impl Usage {
    /// So many tokens in and out.
    #[must_use]
    pub fn new(input: u64, output: u64) -> Self {
        Self { input, output }
    }

    fn total(self) -> u64 {
        self.input + self.output
    }
}

impl Default for Usage {
    fn default() -> Self {
        Self::new(12, 5)
    }
}

/// `text` as a JSON string, in quotation marks.
fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            // Writing to a string does not fail.
            c if c.is_control() => drop(write!(out, "\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// `text` as a JSON string, or null.
fn quote_or_null(text: Option<&str>) -> String {
    text.map_or_else(|| "null".to_owned(), quote)
}

/// The time that every scripted answer bears: 2023-11-14T22:13:20Z, in seconds.
const CREATED: u64 = 1_700_000_000;

/// The request ID that every scripted answer bears, in the header of its dialect.
const REQUEST_ID: &str = "req_scripted";

/// The message of every scripted error.
const MESSAGE: &str = "scripted error";
