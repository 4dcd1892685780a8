mod array;
mod bounds;
mod failures;
mod scan;
mod sse;
