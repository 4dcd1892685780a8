//! What others send, kept small.

/// A copy of `text`, cut to [`MAX`] bytes.
pub(crate) fn boxed(text: &str) -> Box<str> {
    cut(text, MAX).into()
}

/// Puts `text` in `slot`, unless it stands there already: streams repeat themselves in every event.
pub(crate) fn note(slot: &mut Option<Box<str>>, text: &str) {
    let text = cut(text, MAX);
    if slot.as_deref() != Some(text) {
        *slot = Some(text.into());
    }
}

/// The first `max` bytes of `text`, or a little less, so that no character is cut.
pub(crate) fn cut(text: &str, max: usize) -> &str {
    if text.len() <= max {
        return text;
    }
    let end = (0..=max).rev().find(|&at| text.is_char_boundary(at)).unwrap_or_default();
    &text[..end]
}

/// Makes room in `to` for `additional` bytes. It doubles, as a vector does by itself, but sets aside no
/// more than `max` in all unless so much is needed.
pub(crate) fn reserve(to: &mut Vec<u8>, additional: usize, max: usize) {
    let needed = to.len().saturating_add(additional);
    if needed > to.capacity() {
        let wanted = to.capacity().saturating_mul(2).min(max).max(needed);
        to.reserve_exact(wanted - to.len());
    }
}

/// Codes, models and IDs that providers send are far shorter.
const MAX: usize = 256;
