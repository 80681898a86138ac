//! Signatures in the executable's type descriptors, with the location of each parameter and result.

use goexe::{Location, Machine, Signature, Type, Types};
use serde::Serialize;

use super::builder::Builder;
use crate::program::{Program, SpelledOut};

/// A function's parameters and results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FunctionSignature {
    /// Name: a method of an interface, or a field of a struct that holds a function.
    pub function: String,
    /// Parameters in order, without the receiver.
    pub parameters: Vec<Place>,
    /// Results in order.
    pub results: Vec<Place>,
}

/// Location of a value: of parameters at the entry, of results at the return.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// Type, with the last element of the package's path.
    #[serde(rename = "type")]
    pub typ: String,
    /// Registers of its words, joined by `+`; else `stack` or `elsewhere`.
    pub place: String,
}

/// The signatures of all methods and function fields in [`Program::SPELLED_OUT`] that the executable has.
///
/// # Errors
///
/// When a type descriptor is malformed.
pub(super) fn find<P: Program>(
    builder: &Builder<'_, P>,
    machine: Machine,
    SpelledOut { interfaces, structs }: SpelledOut,
) -> Result<Vec<FunctionSignature>, goexe::Error> {
    let types = builder.types;
    let mut found = Vec::new();
    let mut add = |function: &str, typ: &Type| {
        let signature = types.signature(typ)?;
        let parameters = types.parameter_locations(&signature.parameters, true)?;
        let results = types.result_locations(&signature, true)?;
        let Signature { parameters: parameter_types, results: result_types } = &signature;
        found.push(FunctionSignature {
            function: function.to_owned(),
            parameters: places(types, machine, parameter_types, &parameters)?,
            results: places(types, machine, result_types, &results)?,
        });
        Ok::<_, goexe::Error>(())
    };
    for interface in interfaces {
        let Ok((interface, _)) = builder.interface(*interface) else { continue };
        for (method, typ) in types.interface_methods(&interface)? {
            add(method, &typ)?;
        }
    }
    for (package, name) in structs {
        let Ok(holder) = types.find(package, name) else { continue };
        for field in types.fields(&holder)? {
            if field.typ.kind == goexe::Kind::Func {
                add(field.name, &field.typ)?;
            }
        }
    }
    Ok(found)
}

fn places(
    types: &Types<'_>,
    machine: Machine,
    values: &[Type],
    locations: &[Location],
) -> Result<Vec<Place>, goexe::Error> {
    let place = |(typ, location): (&Type, &Location)| {
        let place = match *location {
            Location::Registers { first, count } => {
                let names =
                    (first..first + count).map(|index| machine.integer_register(index).unwrap_or("?"));
                names.collect::<Vec<_>>().join("+")
            }
            Location::Stack { .. } => "stack".to_owned(),
            Location::Elsewhere => "elsewhere".to_owned(),
        };
        Ok(Place { typ: types.string(typ)?.to_owned(), place })
    };
    values.iter().zip(locations).map(place).collect()
}
