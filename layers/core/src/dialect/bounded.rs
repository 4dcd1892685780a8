//! Text of others, kept small.

/// A copy of `text`, cut to [`MAX`] bytes.
pub(super) fn boxed(text: &str) -> Box<str> {
    cut(text, MAX).into()
}

/// Puts `text` in `slot`, unless it stands there already: streams repeat themselves in every event.
pub(super) fn note(slot: &mut Option<Box<str>>, text: &str) {
    let text = cut(text, MAX);
    if slot.as_deref() != Some(text) {
        *slot = Some(text.into());
    }
}

/// The first `max` bytes of `text`, or a little less, so that no character is cut.
pub(super) fn cut(text: &str, max: usize) -> &str {
    if text.len() <= max {
        return text;
    }
    let end = (0..=max).rev().find(|&at| text.is_char_boundary(at)).unwrap_or_default();
    &text[..end]
}

/// Codes, models and IDs that providers send are far shorter.
const MAX: usize = 256;
