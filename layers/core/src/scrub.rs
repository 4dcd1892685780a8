use std::borrow::Cow;
use std::ops::Range;

use crate::bounded;

/// Makes text of others fit for logs, records and errors: bounded, on one line, without anything
/// that looks like a credential.
///
/// Providers echo keys and organization IDs in their messages (DeepSeek, xAI and Groq do), and
/// transports the address that they were called at. Masked are
///
/// - a run of 16 or more letters, digits, `-`, `_` and `+`, if it begins as the known keys do (`sk-`,
///   `AIza`, ...) or has a stretch of 16 letters and digits without a break: keys are like that,
///   model names and prose are not;
/// - what follows `Bearer` or `Basic`, from 8 characters on, unless it is a plain word outside of an
///   `authorization`;
/// - what stands before the `@` of a URL's host.
///
/// Characters that nobody sees are left out, so that they neither hide a key nor break it in two.
#[must_use]
pub fn scrub(text: &str, max_bytes: usize) -> Cow<'_, str> {
    let text = without_unseen(bound(text, max_bytes));
    let secrets = secrets(&text);
    if secrets.is_empty() && !text.chars().any(char::is_control) {
        return text;
    }
    let mut clean = String::with_capacity(text.len());
    let mut at = 0;
    for secret in secrets {
        // Found as part of a longer one.
        if secret.start < at {
            continue;
        }
        push_visible(&mut clean, &text[at..secret.start]);
        clean.push_str(MASK);
        at = secret.end;
    }
    push_visible(&mut clean, &text[at..]);
    // A mask may be longer than what it masks.
    clean.truncate(bounded::cut(&clean, max_bytes).len());
    Cow::Owned(clean)
}

/// The first `max_bytes` of `text`, without the half of a secret that could not be known for one.
fn bound(text: &str, max_bytes: usize) -> &str {
    if text.len() <= max_bytes {
        return text;
    }
    let (head, tail) = text.split_at(bounded::cut(text, max_bytes).len());
    if tail.starts_with(is_space) {
        return head;
    }
    let word =
        head.rfind(is_space).map_or(head, |space| head[space..].trim_start_matches(is_space));
    let before = &head[..head.len() - word.len()];
    if SCHEMES.iter().any(|scheme| scheme_at_end(before, scheme).is_some()) {
        return before;
    }
    if let Some(authority) = word.rfind(URL) {
        return &head[..before.len() + authority + URL.len()];
    }
    let is_in_run = |c| is_key_char(c) || is_unseen(c);
    if tail.starts_with(is_in_run) { head.trim_end_matches(is_in_run) } else { head }
}

/// Where the secrets of `text` stand, by their beginnings.
fn secrets(text: &str) -> Vec<Range<usize>> {
    let mut found: Vec<_> =
        runs(text).filter(|(_, run)| is_secret(run)).map(|(at, run)| at..at + run.len()).collect();
    let mut at = 0;
    while let Some(url) = text[at..].find(URL) {
        at += url + URL.len();
        let rest = &text[at..];
        let ends = |c| is_space(c) || matches!(c, '/' | '?' | '#' | '"' | '\'' | '<' | '>' | '`');
        let authority = &rest[..rest.find(ends).unwrap_or(rest.len())];
        if let Some(user) = authority.rfind('@').filter(|length| *length > 0) {
            found.push(at..at + user);
        }
        // The colon may belong to the next one.
        at += authority.trim_end_matches(':').len();
    }
    let mut at = 0;
    while let Some(space) = text[at..].find(is_space) {
        at += space;
        let before = &text[..at];
        let rest = text[at..].trim_start_matches(is_space);
        at = text.len() - rest.len();
        let Some(start) = SCHEMES.iter().find_map(|scheme| scheme_at_end(before, scheme)) else {
            continue;
        };
        let rest = rest.trim_start_matches(['"', '\'']);
        let start_of_token = text.len() - rest.len();
        let token = &rest[..rest.find(|c| !is_token_char(c)).unwrap_or(rest.len())];
        let token = token.trim_end_matches('.');
        let is_header = || {
            let before = before[..start].trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
            ends_with(before, "authorization")
        };
        if token.len() >= TOKEN && (!is_word(token) || is_header()) {
            found.push(start_of_token..start_of_token + token.len());
        }
    }
    found.sort_unstable_by_key(|secret| (secret.start, std::cmp::Reverse(secret.end)));
    found
}

/// Where `scheme` begins, if `text` ends with it as a word.
fn scheme_at_end(text: &str, scheme: &str) -> Option<usize> {
    let text = text.trim_end_matches(is_space);
    let start = text.len().checked_sub(scheme.len())?;
    let is_word = || !text[..start].ends_with(|c: char| c.is_alphanumeric());
    (ends_with(text, scheme) && is_word()).then_some(start)
}

fn ends_with(text: &str, end: &str) -> bool {
    let start = text.len().checked_sub(end.len());
    start.and_then(|start| text.get(start..)).is_some_and(|tail| tail.eq_ignore_ascii_case(end))
}

/// Whether `token` may be prose: `Basic authentication`.
fn is_word(token: &str) -> bool {
    token.bytes().skip(1).all(|byte| byte.is_ascii_lowercase())
}

fn runs(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let start = text.as_ptr() as usize;
    text.split(|c| !is_key_char(c))
        .filter(|run| !run.is_empty())
        .map(move |run| (run.as_ptr() as usize - start, run))
}

/// `=` is none: what stands before it is the key's name.
fn is_key_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '+' | '*')
}

/// RFC 9110, token68, and what providers mask with.
fn is_token_char(c: char) -> bool {
    is_key_char(c) || matches!(c, '.' | '~' | '/' | '=')
}

fn is_space(c: char) -> bool {
    c.is_whitespace()
}

/// Controls that move nothing, and Unicode's invisible characters and marks of direction.
fn is_unseen(c: char) -> bool {
    (c.is_control() && !is_space(c))
        || matches!(
            u32::from(c),
            0xAD | 0x34F | 0x61C | 0x115F..=0x1160 | 0x17B4..=0x17B5 | 0x180B..=0x180F
                | 0x200B..=0x200F | 0x202A..=0x202E | 0x2060..=0x206F | 0x3164
                | 0xFE00..=0xFE0F | 0xFEFF | 0xFFA0 | 0xFFF9..=0xFFFB | 0xE0000..=0xE0FFF
        )
}

fn without_unseen(text: &str) -> Cow<'_, str> {
    if text.chars().any(is_unseen) {
        Cow::Owned(text.chars().filter(|c| !is_unseen(*c)).collect())
    } else {
        Cow::Borrowed(text)
    }
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
const URL: &str = "://";
const SCHEMES: [&str; 2] = ["bearer", "basic"];
/// The shortest token behind a scheme that is masked.
const TOKEN: usize = 8;

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

    #[test]
    fn a_key_behind_its_name_is_masked() {
        for (text, clean) in [
            (
                "GET https://h/v1?key=AIzaSyA-abcdefg_hijklmn-op1234567abcd failed",
                "GET https://h/v1?key=*** failed",
            ),
            ("api_key=sk-abc-def-ghi-jkl-mno&x=1", "api_key=***&x=1"),
            ("a==sk-abc-def-ghi-jkl-mno==", "a==***=="),
        ] {
            assert_eq!(scrub(text, 1024), clean);
        }
    }

    #[test]
    fn a_url_does_not_say_who_calls() {
        for (text, clean) in [
            ("dial http://user:pass@proxy.example:80/v1", "dial http://***@proxy.example:80/v1"),
            ("https://u:p@ss@h and https://k@h?x", "https://***@h and https://***@h?x"),
            ("https://h/p?mail=a@b", "https://h/p?mail=a@b"),
            ("a://", "a://"),
            ("://@://x@", "://@://***@"),
        ] {
            assert_eq!(scrub(text, 1024), clean, "{text}");
        }
        assert_eq!(scrub("dial http://user:pass@proxy", 20), "dial http://");
    }

    #[test]
    fn a_token_behind_its_scheme_is_masked_and_a_word_is_not() {
        for (text, clean) in [
            ("Authorization: Bearer abc.def-123/x~y==, x", "Authorization: Bearer ***, x"),
            ("basic  dXNlcjpwYXNz.", "basic  ***."),
            ("{\"authorization\": \"BEARER abcdefgh\"}", "{\"authorization\": \"BEARER ***\"}"),
            ("Bearer 1234567", "Bearer 1234567"),
            ("Basic authentication is required", "Basic authentication is required"),
            ("You must send a Bearer token.", "You must send a Bearer token."),
            ("forbearer abc12345", "forbearer abc12345"),
        ] {
            assert_eq!(scrub(text, 1024), clean);
        }
        assert_eq!(scrub("Bearer abc.def.ghi.jkl", 15), "Bearer ");
    }

    #[test]
    fn what_nobody_sees_does_not_break_a_key() {
        for unseen in ["\u{200b}", "\u{ad}", "\u{feff}", "\u{2060}", "\0", "\u{202e}", "\u{7f}"] {
            let key = format!("key sk-{unseen}proj-abc{unseen}123DEF456ghi789{unseen} x");
            assert_eq!(scrub(&key, 1024), "key *** x", "{unseen:?}");
            let key = format!("key AIzaSy{unseen}abc_def-ghi-jkl");
            assert_eq!(scrub(&key, 1024), "key ***", "{unseen:?}");
            assert_eq!(scrub(&key, 14), "key ", "{unseen:?}");
        }
    }

    #[test]
    fn hostile_text_takes_no_longer_than_other_text() {
        for piece in
            ["://", "@", "://@", "bearer ", "basic\t", "=", "\u{200b}", " ", "authorization "]
        {
            let text = piece.repeat((1 << 20) / piece.len());
            assert!(scrub(&text, text.len()).len() <= text.len());
            assert!(scrub(&text, 1000).len() <= 1000, "{piece:?}");
        }
    }
}
