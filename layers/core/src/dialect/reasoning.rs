/// Where a reasoning effort stands in a request's body.
///
/// The effort is a JSON string at the end of [`ReasoningPlace::keys`]; objects on the way that the
/// body lacks are made. So the effort `high` becomes `"reasoning_effort":"high"` for keys of one, and
/// `"reasoning":{"effort":"high"}` for keys of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReasoningPlace {
    keys: &'static [&'static str],
}

impl ReasoningPlace {
    pub(super) const fn new(keys: &'static [&'static str]) -> Self {
        Self { keys }
    }

    /// The keys that lead to the effort, from the top of the body; never empty.
    #[must_use]
    pub const fn keys(self) -> &'static [&'static str] {
        self.keys
    }
}
