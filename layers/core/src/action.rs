use std::fmt;

use crate::{Class, Verdict};

/// What is done about a failure of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// Go to the next rung of the chain at once; on the last rung this is [`Action::Return`].
    Next,
    /// Try the same rung again; when the rung is spent, go to the next.
    Retry,
    /// Hand the failure to the caller as it is.
    Return,
}

impl Action {
    /// The word for this action in configs and records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Next => "next",
            Self::Retry => "retry",
            Self::Return => "return",
        }
    }

    /// The action that a config calls `word`; `None` for an unknown word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Next, Self::Retry, Self::Return].into_iter().find(|action| action.as_str() == word)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which [`Action`] answers which [`Class`]. Every cell can be set.
///
/// Defaults: `rate_limited`, `overloaded`, `transient`, `upstream` and `timeout` are retried;
/// `quota_exhausted`, `context_window_exceeded`, `auth` and `not_found` go to the next rung;
/// `content_refused`, `invalid_request`, `too_large` and `cancelled` are returned.
///
/// ```
/// use backstop_core::{Action, ActionTable, Class};
///
/// let table = ActionTable::default().with(Class::ContentRefused, Action::Retry);
/// assert_eq!(table.of(Class::ContentRefused), Action::Retry);
/// assert_eq!(table.of(Class::QuotaExhausted), Action::Next);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ActionTable {
    actions: [Action; Class::ALL.len()],
}

impl ActionTable {
    /// Sets the action for `class`. What is set for [`Class::Success`] has no effect: a good answer
    /// is always returned.
    #[must_use]
    pub fn with(mut self, class: Class, action: Action) -> Self {
        self.actions[class as usize] = action;
        self
    }

    /// The action for `class`; [`Action::Return`] for a success.
    #[must_use]
    pub const fn of(&self, class: Class) -> Action {
        match class {
            Class::Success => Action::Return,
            class => self.actions[class as usize],
        }
    }

    /// The action for `verdict`: the table's, unless the provider itself said whether a repeat makes
    /// sense (`x-should-retry`, or a fact of its dialect).
    ///
    /// A provider's "no" makes a retried class [`Action::Next`]: this rung is spent, another may
    /// serve. Its "yes" makes any failure [`Action::Retry`]. Neither changes the class.
    #[must_use]
    pub fn decide(&self, verdict: &Verdict) -> Action {
        let action = self.of(verdict.class());
        match verdict.should_retry() {
            Some(true) if verdict.class().is_failure() => Action::Retry,
            Some(false) if action == Action::Retry => Action::Next,
            _ => action,
        }
    }
}

impl Default for ActionTable {
    fn default() -> Self {
        let mut actions = [Action::Return; Class::ALL.len()];
        for class in Class::ALL {
            actions[class as usize] = default_action(class);
        }
        Self { actions }
    }
}

impl fmt::Debug for ActionTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(
                Class::ALL.iter().filter(|c| c.is_failure()).map(|c| (c.as_str(), self.of(*c))),
            )
            .finish()
    }
}

const fn default_action(class: Class) -> Action {
    match class {
        Class::RateLimited
        | Class::Overloaded
        | Class::Transient
        | Class::Upstream
        | Class::Timeout => Action::Retry,
        Class::QuotaExhausted | Class::ContextWindowExceeded | Class::Auth | Class::NotFound => {
            Action::Next
        }
        Class::ContentRefused
        | Class::InvalidRequest
        | Class::TooLarge
        | Class::Cancelled
        | Class::Success => Action::Return,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cell_can_be_set_and_touches_no_other() {
        for class in Class::ALL.into_iter().filter(|class| class.is_failure()) {
            for action in [Action::Next, Action::Retry, Action::Return] {
                let table = ActionTable::default().with(class, action);
                for other in Class::ALL {
                    let expected =
                        if other == class { action } else { ActionTable::default().of(other) };
                    assert_eq!(table.of(other), expected, "{class} -> {action}, read {other}");
                }
            }
        }
    }

    #[test]
    fn the_providers_own_word_beats_the_table_but_never_the_class() {
        let table = ActionTable::default();
        let no = Verdict::new(Class::RateLimited).with_should_retry(false);
        assert_eq!((table.decide(&no), no.class()), (Action::Next, Class::RateLimited));
        let yes = Verdict::new(Class::InvalidRequest).with_should_retry(true);
        assert_eq!((table.decide(&yes), yes.class()), (Action::Retry, Class::InvalidRequest));
        let good = Verdict::new(Class::Success).with_should_retry(true);
        assert_eq!(table.decide(&good), Action::Return);
        let refused = Verdict::new(Class::ContentRefused).with_should_retry(false);
        assert_eq!(table.decide(&refused), Action::Return, "a no does not turn return into next");
    }
}
