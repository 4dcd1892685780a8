//! Finding and replacing `model` in a chat body of 200 KB, beside the least that serde_json does to
//! such a body.
//!
//! Read the ratios within one run: `cargo bench -p backstop-benches --bench splice`. The goal is
//! 0.6 times serde's time for the bodies `prose`, `code` and `short`; the others are there to see
//! what they cost.

use std::fmt::Write;
use std::hint::black_box;

use backstop_core::splice;
use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use serde::de::IgnoredAny;

fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("splice");
    for kind in [Kind::Prose, Kind::Code, Kind::Short, Kind::Image, Kind::Unicode, Kind::Numbers] {
        for model in [Model::Last, Model::First] {
            let body = Bytes::from(body(kind, model));
            let name = format!("{kind:?}, model {model:?}").to_lowercase();
            group.throughput(Throughput::Bytes(body.len() as u64));
            group.bench_with_input(
                BenchmarkId::new("serde_json ignores", &name),
                &body,
                |bench, body| {
                    bench.iter(|| serde_json::from_slice::<IgnoredAny>(black_box(body)).is_ok());
                },
            );
            group.bench_with_input(
                BenchmarkId::new("find and replace", &name),
                &body,
                |bench, body| {
                    bench.iter(|| {
                        let object = splice::find(black_box(body), ["model"]).ok()?;
                        let edit =
                            object.set("model", splice::json_string(black_box("gpt-5.5")))?;
                        splice::replace(body, [edit]).ok()
                    });
                },
            );
        }
    }
    group.finish();
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Messages of some 2 KB: a quotation or the end of a paragraph every 70 bytes.
    Prose,
    /// Messages of some 5 KB: the end of a line, or a quotation mark, every 30 bytes.
    Code,
    /// Messages of some 90 bytes; in every third an escape.
    Short,
    /// Images as base64.
    Image,
    /// Chinese text as some JSON encoders write it: nothing but `\uXXXX`.
    Unicode,
    /// Token numbers, as for embeddings.
    Numbers,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Model {
    First,
    Last,
}

fn body(kind: Kind, model: Model) -> Vec<u8> {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut body = String::from("{");
    if model == Model::First {
        body.push_str(r#""model":"gpt-5.6-sol","#);
    }
    body.push_str(r#""temperature":0.7,"max_tokens":4096,"stream":true,"#);
    if let Kind::Numbers = kind {
        body.push_str(r#""input":["#);
        while body.len() < SIZE {
            let _ = write!(body, "{},", random.below(100_000));
        }
        body.push('0');
    } else {
        body.push_str(r#""messages":["#);
        for role in ["user", "assistant"].iter().cycle() {
            let _ = write!(body, r#"{{"role":"{role}","content":""#);
            content(kind, &mut random, &mut body);
            body.push_str(r#""}"#);
            if body.len() > SIZE {
                break;
            }
            body.push(',');
        }
    }
    body.push(']');
    if model == Model::Last {
        body.push_str(r#","model":"gpt-5.6-sol""#);
    }
    body.push('}');
    body.into_bytes()
}

fn content(kind: Kind, random: &mut Random, out: &mut String) {
    let size = match kind {
        Kind::Prose => 200 + random.below(4_000),
        Kind::Code => 500 + random.below(8_000),
        Kind::Short => 1,
        Kind::Image | Kind::Unicode | Kind::Numbers => 60_000,
    };
    let end = out.len() + size;
    while out.len() < end {
        match kind {
            Kind::Prose => paragraph(random, out),
            Kind::Code => line(random, out),
            Kind::Short => {
                let count = 12 + random.below(10);
                words(random, count, out);
                if random.below(3) == 0 {
                    out.push_str("\\n");
                    words(random, 2, out);
                }
            }
            Kind::Image => {
                out.push(char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef"[random.below(32)]))
            }
            Kind::Unicode | Kind::Numbers => {
                let _ = write!(out, "\\u{:04x}", 0x4E00 + random.below(8_000));
            }
        }
    }
}

fn paragraph(random: &mut Random, out: &mut String) {
    for _ in 0..2 + random.below(4) {
        let count = 6 + random.below(14);
        words(random, count, out);
        if random.below(4) == 0 {
            out.push_str(" \\\"");
            let count = 1 + random.below(5);
            words(random, count, out);
            out.push_str("\\\"");
        }
        out.push_str(". ");
    }
    out.push_str("\\n\\n");
}

fn line(random: &mut Random, out: &mut String) {
    for _ in 0..random.below(5) {
        out.push_str("    ");
    }
    let count = 1 + random.below(6);
    match random.below(6) {
        0 => {
            out.push_str("println!(\\\"");
            words(random, count, out);
            out.push_str(" {}\\\\n\\\", value);");
        }
        1 => out.push('}'),
        2 => {}
        3 => {
            out.push_str("let value = self.");
            words(random, 1, out);
            out.push_str("(ctx, &[item])?;");
        }
        4 => {
            out.push_str("// ");
            words(random, count + 4, out);
        }
        _ => {
            out.push_str("if ");
            words(random, 1, out);
            out.push_str(".len() < limit {");
        }
    }
    out.push_str("\\n");
}

fn words(random: &mut Random, count: usize, out: &mut String) {
    for i in 0..count {
        if i > 0 {
            out.push(' ');
        }
        out.push_str(WORDS[random.below(WORDS.len())]);
    }
}

/// Enough chance for text, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % limit
    }
}

const SIZE: usize = 200_000;
const WORDS: &[&str] = &[
    "the", "of", "and", "to", "in", "a", "is", "that", "for", "it", "model", "answer", "request",
    "because", "which", "would", "there", "their", "should", "between", "system", "question",
    "retry", "provider", "latency", "result", "however", "evaluate", "tokens", "context", "don’t",
    "we", "you", "can", "see", "as", "with", "on", "be", "are", "this", "by", "not", "or", "from",
    "an",
];

criterion_group!(benches, bench);
criterion_main!(benches);
