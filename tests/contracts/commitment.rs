//! When an answer is handed on, and that a caller never gets half an answer for a whole one, or two for one.

mod boundaries;
mod cell;
mod chunkings;
mod documents;
mod giving_up;
mod hints;
mod hold_limit;
mod lengths;
mod packed;
mod served;
mod wires;
