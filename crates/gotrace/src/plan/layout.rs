//! The fields of structs that reads follow.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use goexe::{Path, Step, Type, Types};
use serde::Serialize;

/// A field of a struct on the path of a read, and its offset in the executable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Layout {
    /// Struct type, with its package's path.
    #[serde(rename = "type")]
    pub typ: String,
    /// Name of the field.
    pub field: String,
    /// Offset in bytes from the start of the struct.
    pub offset: u64,
    /// Whether a read uses the field.
    pub read: bool,
}

/// The fields on the plan's paths, by struct.
pub(super) type Structs = BTreeMap<String, (Type, BTreeSet<String>)>;

/// All fields of the structs.
pub(super) fn layouts(types: &Types<'_>, structs: &Structs) -> Result<Vec<Layout>, goexe::Error> {
    let mut layouts = Vec::new();
    for (name, (typ, read)) in structs {
        layouts.extend(types.fields(typ)?.into_iter().map(|field| Layout {
            typ: name.clone(),
            field: field.name.to_owned(),
            offset: field.offset,
            read: read.contains(field.name),
        }));
    }
    Ok(layouts)
}

/// Follows a path from a struct, and records its fields.
pub(super) fn follow<'a>(
    types: &Types<'a>,
    structs: &RefCell<Structs>,
    from: &Type,
    fields: &[&str],
) -> Result<Path<'a>, goexe::Error> {
    let path = types.path(from, fields)?;
    for Step { owner, field, .. } in &path.steps {
        let package = types.package(owner)?.unwrap_or_default();
        let name = types.string(owner)?.rsplit('.').next().unwrap_or_default();
        let mut structs = structs.borrow_mut();
        let (_, read) = structs.entry(format!("{package}.{name}")).or_insert((*owner, BTreeSet::new()));
        read.insert((*field).to_owned());
    }
    Ok(path)
}
