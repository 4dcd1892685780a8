//! Where the members and the containers of a document stand, noted while it is checked, so that going
//! into it does not scan it again and again.

use std::ops::Range;

/// Is told of a document's parts while it is checked.
pub(super) trait NoteSpans {
    /// A key stands from `start` to `end`; its value comes next.
    fn key(&mut self, start: usize, end: usize);
    /// A value begins.
    fn begins(&mut self, at: usize);
    /// The value that began last has ended; unless it is a container that is open now.
    fn ended(&mut self, at: usize);
    /// The value that began last is a container, the `depth`-th open one, and it is not empty.
    fn opened(&mut self, depth: u32, start: usize);
    /// It ends before `end`.
    fn closed(&mut self, depth: u32, end: usize);
}

impl NoteSpans for () {
    #[inline(always)]
    fn key(&mut self, _: usize, _: usize) {}
    #[inline(always)]
    fn begins(&mut self, _: usize) {}
    #[inline(always)]
    fn ended(&mut self, _: usize) {}
    #[inline(always)]
    fn opened(&mut self, _: u32, _: usize) {}
    #[inline(always)]
    fn closed(&mut self, _: u32, _: usize) {}
}

/// The members of a small document, and the outer containers of any.
#[derive(Clone, Debug)]
pub(super) struct Spans {
    /// Where the document lies in memory: values are parts of it, and know nothing else of where they
    /// stand.
    base: usize,
    /// In the order of the document.
    members: [Member; MEMBERS],
    member_count: usize,
    /// There are more members than there is room for, or deeper ones: none of them counts.
    is_overfull: bool,
    /// The member whose value begins next.
    next: Option<usize>,
    open: [Open; LEVELS],
    containers: [Range32; CONTAINERS],
    container_count: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Member {
    key: Range32,
    value: Range32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Range32 {
    start: u32,
    end: u32,
}

impl Range32 {
    const fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// A container that is not closed yet.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    start: u32,
    /// The member whose value it is; of an element, none.
    member: Option<usize>,
}

impl Spans {
    #[inline]
    pub(super) fn of(document: &[u8]) -> Self {
        Self {
            base: document.as_ptr().addr(),
            members: [Member { key: NOWHERE, value: NOWHERE }; MEMBERS],
            member_count: 0,
            // Positions have 32 bits here.
            is_overfull: u32::try_from(document.len()).is_err(),
            next: None,
            open: [Open { start: 0, member: None }; LEVELS],
            containers: [NOWHERE; CONTAINERS],
            container_count: 0,
        }
    }

    fn offset(&self, part: &[u8]) -> usize {
        part.as_ptr().addr().wrapping_sub(self.base)
    }

    /// How long the container is that `rest` begins with, if that was noted.
    #[inline]
    pub(super) fn length_of(&self, rest: &[u8]) -> Option<usize> {
        let start = self.offset(rest);
        let noted = self.containers.get(..self.container_count)?;
        let span = noted.iter().find(|noted| noted.start as usize == start)?;
        Some(span.range().len())
    }

    /// Where the members of an object begin in the notes; `None` where they are not noted.
    #[inline]
    pub(super) fn first_member(&self, object: &[u8]) -> Option<usize> {
        if self.is_overfull {
            return None;
        }
        let start = self.offset(object);
        let noted = self.members.get(..self.member_count)?;
        Some(noted.partition_point(|member| member.key.start as usize <= start))
    }

    /// The member of `object` that stands at `at` in the notes, as key and value in `object`, and where
    /// the one after it stands.
    #[inline]
    pub(super) fn member(
        &self,
        object: &[u8],
        at: usize,
    ) -> Option<(Range<usize>, Range<usize>, usize)> {
        let start = self.offset(object);
        let noted = self.members.get(..self.member_count)?;
        let member = noted.get(at)?;
        if member.key.start as usize >= start + object.len() {
            return None;
        }
        let mut next = at + 1;
        while noted.get(next).is_some_and(|inner| inner.key.start < member.value.end) {
            next += 1;
        }
        let within = |span: Range32| span.start as usize - start..span.end as usize - start;
        Some((within(member.key), within(member.value), next))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "where a position does not fit the notes are overfull from the start"
)]
const fn narrow(at: usize) -> u32 {
    at as u32
}

impl NoteSpans for Spans {
    #[inline(always)]
    fn key(&mut self, start: usize, end: usize) {
        match self.members.get_mut(self.member_count) {
            Some(place) => {
                place.key = Range32 { start: narrow(start), end: narrow(end) };
                self.next = Some(self.member_count);
                self.member_count += 1;
            }
            None => self.is_overfull = true,
        }
    }

    #[inline(always)]
    fn begins(&mut self, at: usize) {
        if let Some(place) = self.next.and_then(|next| self.members.get_mut(next)) {
            place.value.start = narrow(at);
        }
    }

    #[inline(always)]
    fn ended(&mut self, at: usize) {
        if let Some(place) = self.next.take().and_then(|next| self.members.get_mut(next)) {
            place.value.end = narrow(at);
        }
    }

    #[inline(always)]
    fn opened(&mut self, depth: u32, start: usize) {
        let member = self.next.take();
        match self.open.get_mut(depth as usize) {
            Some(open) => *open = Open { start: narrow(start), member },
            None => self.is_overfull = true,
        }
    }

    #[inline(always)]
    fn closed(&mut self, depth: u32, end: usize) {
        let Some(Open { start, member }) = self.open.get(depth as usize).copied() else { return };
        let end = narrow(end);
        if let Some(place) = member.and_then(|member| self.members.get_mut(member)) {
            place.value.end = end;
        }
        if end - start > WORTH_IT
            && let Some(place) = self.containers.get_mut(self.container_count)
        {
            *place = Range32 { start, end };
            self.container_count += 1;
        }
    }
}

const NOWHERE: Range32 = Range32 { start: 0, end: 0 };
/// A usual answer has about thirty members.
const MEMBERS: usize = 64;
/// Answers keep what matters in the outer levels.
const LEVELS: usize = 12;
/// A usual answer has about five containers that are worth it.
const CONTAINERS: usize = 12;
/// What is shorter is scanned in no more time than it takes to look it up.
const WORTH_IT: u32 = 48;
