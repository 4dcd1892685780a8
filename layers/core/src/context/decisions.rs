use std::borrow::Cow;
use std::sync::OnceLock;
use std::time::Instant;

/// Something that was decided about a call without an attempt: a rung that was skipped, an answer that
/// was too long to be held.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Decision {
    /// When.
    pub at: Instant,
    /// What, in words for people.
    pub what: Cow<'static, str>,
}

/// Decisions in order: each is written once, and the place for the next one with it.
#[derive(Default)]
pub(super) struct Decisions {
    first: OnceLock<Box<Noted>>,
}

struct Noted {
    decision: Decision,
    next: OnceLock<Box<Self>>,
}

impl Decisions {
    pub(super) fn note(&self, decision: Decision) {
        let mut noted = Box::new(Noted { decision, next: OnceLock::new() });
        let mut place = &self.first;
        for _ in 0..MAX_DECISIONS {
            match place.set(noted) {
                Ok(()) => return,
                Err(back) => noted = back,
            }
            match place.get() {
                Some(taken) => place = &taken.next,
                None => return,
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Decision> {
        let first = self.first.get();
        std::iter::successors(first, |noted| noted.next.get()).map(|noted| &noted.decision)
    }
}

/// Chains are short: a call with more decisions than this is one that repeats itself.
const MAX_DECISIONS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any instant will do")]
    fn they_stand_in_order_and_are_bounded_whoever_notes_them() {
        let decisions = Decisions::default();
        let at = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let decisions = &decisions;
                scope.spawn(move || {
                    for n in 0..12 {
                        decisions.note(Decision { at, what: format!("{thread} {n}").into() });
                    }
                });
            }
        });
        let all: Vec<_> = decisions.iter().map(|decision| decision.what.clone()).collect();
        assert_eq!(all.len(), 48);
        for thread in 0..4 {
            let own = all.iter().filter(|what| what.starts_with(&format!("{thread} ")));
            assert!(own.is_sorted_by_key(|what| what[2..].parse::<u32>().unwrap()));
        }
        (0..1_000).for_each(|_| decisions.note(Decision { at, what: "more".into() }));
        assert_eq!(decisions.iter().count(), MAX_DECISIONS);
    }
}
