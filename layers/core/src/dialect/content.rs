//! Whether a JSON value holds anything.

use crate::json::{Kind, Value};

/// Whether `value` is a text, a list or an object that is not empty.
pub(super) fn is_filled(value: Option<Value<'_>>) -> bool {
    value.is_some_and(|value| match value.kind() {
        Kind::Array => value.elements().next().is_some(),
        Kind::Object => value.members().next().is_some(),
        Kind::String => !value.is_empty_string(),
        Kind::Bool | Kind::Null | Kind::Number => false,
    })
}

/// Whether `value` is a list.
pub(super) fn is_list(value: Value<'_>) -> bool {
    value.kind() == Kind::Array
}
