use bytes::Bytes;
use http::Request;

use super::{Place, Unfit, describe};
use crate::dialect::ModelPlace;
use crate::splice::{self, Edit, Found};
use crate::{Profile, RequestBody};

/// Sets the model, and the reasoning effort if one is declared.
pub(super) fn apply(
    request: &mut Request<RequestBody>,
    profile: &Profile,
    place: Place,
) -> Result<(), Unfit> {
    let dialect = profile.dialect();
    let stands_in_path = dialect.model_place() == ModelPlace::Path;
    if stands_in_path {
        match dialect.with_model_in_path(request.uri(), profile.model()) {
            Some(uri) => *request.uri_mut() = uri,
            None if place == Place::Primary => {}
            None => return Err(no_model(profile)),
        }
    }
    let effort = profile.reasoning().and_then(|effort| {
        Some((effort, dialect.reasoning_place(dialect.endpoint(request.uri()))?.keys()))
    });
    if stands_in_path && effort.is_none() && !request.body().may_hold(b"model") {
        return Ok(());
    }
    let body = request.body().to_bytes();
    let edits = match edits(&body, profile, effort) {
        Some(edits) => edits,
        None if place == Place::Primary || (stands_in_path && effort.is_none()) => return Ok(()),
        None => return Err(no_model(profile)),
    };
    if let [None, None] = edits {
        return Ok(());
    }
    let pieces = splice::replace(&body, edits.into_iter().flatten());
    let changed = RequestBody::from_pieces(pieces.map_err(|_| no_model(profile))?);
    describe(request.headers_mut(), changed.len());
    *request.body_mut() = changed;
    Ok(())
}

fn no_model(profile: &Profile) -> Unfit {
    Unfit::NoModel { profile: profile.id().into() }
}

/// What to change in the body, of model and effort; `None` if it cannot be.
fn edits(
    body: &Bytes,
    profile: &Profile,
    effort: Option<(&str, &'static [&'static str])>,
) -> Option<[Option<Edit>; 2]> {
    let object = splice::find(body, ["model"]).ok()?;
    let stands_in_path = profile.dialect().model_place() == ModelPlace::Path;
    let model = match object.found() {
        // A dialect whose path names the model need not have it in the body as well.
        [Found::Absent] if stands_in_path => None,
        [Found::Absent | Found::Repeated] => return None,
        [Found::Once(span)] => {
            let old = body.get(span.clone())?;
            // Google's bodies write `models/{model}`.
            let is_resource = stands_in_path && old.starts_with(b"\"models/");
            let new = match is_resource {
                true => splice::json_string(&format!("models/{}", profile.model())),
                false => profile.model_json().clone(),
            };
            if old == new { None } else { Some(object.set("model", new)?) }
        }
    };
    let effort = match effort {
        Some((effort, keys)) => set_effort(body, effort, keys)?,
        None => None,
    };
    Some([model, effort])
}

/// The edit that sets the effort at the end of `keys`, making the objects on the way that are not there;
/// `Some(None)` if it is set already.
fn set_effort(body: &Bytes, effort: &str, keys: &[&'static str]) -> Option<Option<Edit>> {
    let mut span = 0..body.len();
    for (at, key) in keys.iter().enumerate() {
        let object = if at == 0 {
            splice::find(body, [*key]).ok()?
        } else {
            splice::find_within(body, span.clone(), [*key]).ok()?
        };
        let [found] = object.found();
        let rest = keys.get(at + 1..).unwrap_or_default();
        let is_last = rest.is_empty();
        match found {
            Found::Repeated => return None,
            Found::Once(value) if !is_last && is_object(body.get(value.clone())?) => {
                span = value.clone();
            }
            Found::Once(value) => {
                let new = nested(effort, rest);
                let is_set = body.get(value.clone()) == Some(&new[..]);
                return Some(if is_set { None } else { Some(object.set(key, new)?) });
            }
            Found::Absent => return Some(Some(object.set(key, nested(effort, rest))?)),
        }
    }
    None
}

fn is_object(value: &[u8]) -> bool {
    value.first() == Some(&b'{')
}

/// `"high"` under `keys`: `{"effort":"high"}` for one.
fn nested(effort: &str, keys: &[&str]) -> Bytes {
    let mut json = splice::json_string(effort).to_vec();
    for key in keys.iter().rev() {
        let mut outer = vec![b'{'];
        outer.extend_from_slice(&splice::json_string(key));
        outer.push(b':');
        outer.append(&mut json);
        outer.push(b'}');
        json = outer;
    }
    json.into()
}
