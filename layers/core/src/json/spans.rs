//! Where the containers of a small document end, so that going into it does not scan them again and
//! again.

/// Is told of containers while a document is checked.
pub(super) trait NoteSpans {
    /// The container that is the `depth`-th open one begins at `start`.
    fn opened(&mut self, depth: u32, start: usize);
    /// It ends before `end`.
    fn closed(&mut self, depth: u32, end: usize);
}

impl NoteSpans for () {
    #[inline(always)]
    fn opened(&mut self, _: u32, _: usize) {}
    #[inline(always)]
    fn closed(&mut self, _: u32, _: usize) {}
}

/// The ends of a document's outer containers, as far as there is room and it pays.
#[derive(Clone, Debug)]
pub(super) struct Spans {
    /// Where the document lies in memory: values are parts of it, and know nothing else of where they
    /// stand.
    base: usize,
    open: [usize; LEVELS],
    closed: [(usize, usize); ROOM],
    count: usize,
}

impl Spans {
    pub(super) fn of(document: &[u8]) -> Self {
        let base = document.as_ptr().addr();
        Self { base, open: [0; LEVELS], closed: [(0, 0); ROOM], count: 0 }
    }

    /// How long the container is that `rest` begins with, if that was noted.
    #[inline]
    pub(super) fn length_of(&self, rest: &[u8]) -> Option<usize> {
        let start = rest.as_ptr().addr().wrapping_sub(self.base);
        let noted = self.closed.get(..self.count)?;
        let (start, end) = noted.iter().find(|(noted, _)| *noted == start)?;
        Some(end - start)
    }
}

impl NoteSpans for Spans {
    #[inline]
    fn opened(&mut self, depth: u32, start: usize) {
        if let Some(open) = self.open.get_mut(depth as usize) {
            *open = start;
        }
    }

    #[inline]
    fn closed(&mut self, depth: u32, end: usize) {
        let Some(start) = self.open.get(depth as usize).copied() else { return };
        if end - start > WORTH_IT
            && let Some(place) = self.closed.get_mut(self.count)
        {
            *place = (start, end);
            self.count += 1;
        }
    }
}

/// Answers keep what matters in the outer levels.
const LEVELS: usize = 6;
/// A usual answer has about five containers that are worth it.
const ROOM: usize = 12;
/// What is shorter is scanned in no more time than it takes to look it up.
const WORTH_IT: usize = 48;
