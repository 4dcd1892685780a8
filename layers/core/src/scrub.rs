use std::borrow::Cow;

/// Makes text of others fit for logs, records and errors: bounded, on one line, without anything
/// that looks like a credential.
///
/// Providers echo keys and organization IDs in their messages (DeepSeek, xAI and Groq do). A run of
/// 16 or more letters, digits, `-`, `_`, `+` and `=` is masked if it begins as the known keys do
/// (`sk-`, `AIza`, ...) or has a stretch of 16 letters and digits without a break: keys are like
/// that, model names and prose are not.
#[must_use]
pub fn scrub(text: &str, max_bytes: usize) -> Cow<'_, str> {
    let bounded = bound(text, max_bytes);
    if !bounded.chars().any(char::is_control) && !runs(bounded).any(|(_, run)| is_secret(run)) {
        return Cow::Borrowed(bounded);
    }
    let mut clean = String::with_capacity(bounded.len());
    let mut at = 0;
    for (start, run) in runs(bounded) {
        push_visible(&mut clean, &bounded[at..start]);
        clean.push_str(if is_secret(run) { MASK } else { run });
        at = start + run.len();
    }
    push_visible(&mut clean, &bounded[at..]);
    Cow::Owned(clean)
}

fn bound(text: &str, max_bytes: usize) -> &str {
    if text.len() <= max_bytes {
        return text;
    }
    // A key cut in two by the bound may be too short to be known for one: leave out the last run.
    let cut = (0..=max_bytes).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    let (head, tail) = text.split_at(cut);
    if tail.starts_with(is_key_char) { head.trim_end_matches(is_key_char) } else { head }
}

fn runs(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let start = text.as_ptr() as usize;
    text.split(|c| !is_key_char(c))
        .filter(|run| !run.is_empty())
        .map(move |run| (run.as_ptr() as usize - start, run))
}

fn is_key_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '+' | '=' | '*')
}

fn is_secret(run: &str) -> bool {
    let begins_as_a_key = || {
        KEY_PREFIXES.iter().any(|prefix| {
            run.get(..prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(prefix))
        })
    };
    let has_digit = |text: &str| text.bytes().any(|b| b.is_ascii_digit());
    let has_letter = |text: &str| text.bytes().any(|b| b.is_ascii_alphabetic());
    let unbroken = || {
        run.split(|c: char| !c.is_ascii_alphanumeric())
            .any(|part| part.len() >= SECRET_RUN && has_digit(part) && has_letter(part))
    };
    run.len() >= SECRET_RUN && (begins_as_a_key() || unbroken())
}

fn push_visible(out: &mut String, text: &str) {
    out.extend(text.chars().map(|c| if c.is_control() { ' ' } else { c }));
}

const MASK: &str = "***";

/// OpenAI, Anthropic and DeepSeek; Google; Groq; xAI; Hugging Face; AWS; OpenAI's organizations.
const KEY_PREFIXES: [&str; 9] =
    ["sk-", "AIza", "gsk_", "xai-", "hf_", "AKIA", "ASIA", "org-", "key-"];

/// The shortest keys in use have 20 characters and more; 16 leaves room for one that was masked in
/// part by the provider.
const SECRET_RUN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_masked_and_prose_is_not() {
        assert_eq!(
            scrub("Incorrect API key provided: sk-proj-abc123DEF456ghi789. See the docs.", 1024),
            "Incorrect API key provided: ***. See the docs."
        );
        assert_eq!(scrub("key KEY-A-0123456789abcdef\nnext", 1024), "key *** next");
        let prose =
            "model claude-3-5-sonnet-20241022 at https://api.example.com/v1/messages has 8192";
        assert!(matches!(scrub(prose, 1024), Cow::Borrowed(text) if text == prose));
    }

    #[test]
    fn the_bound_holds_and_never_cuts_a_character_or_leaves_half_a_key() {
        assert_eq!(scrub("héé", 2), "h");
        assert_eq!(scrub("a bé", 4), "a b");
        assert_eq!(scrub("key sk-12345678901234567890", 12), "key ");
        assert_eq!(scrub(&"é".repeat(1000), 100).len(), 100);
    }
}
