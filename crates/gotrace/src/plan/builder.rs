//! A plan in the making: what the executable has of functions, interfaces and signatures, and what was chosen so far.

use std::{
    cell::{OnceCell, RefCell},
    collections::BTreeSet,
};

use goexe::{Argument, Call, Callee, DebugInfo, Executable, Functions, Kind, Type, Types};

use super::{
    layout::{Structs, follow},
    row::{Field, Interface, Row, Signature},
    site::{Missing, PlannedSite},
};
use crate::program::Program;

/// Placeholder for type arguments in a row's symbols and types, as in a traceback.
pub(super) const ANY_ARGUMENTS: &str = "[...]";
/// Placeholder for the type arguments of an instantiation by GC shape in a row's symbols.
pub(super) const ANY_SHAPE: &str = "[go.shape...]";
/// Before the name of a field, behind the type that has it.
const FIELD: char = '#';

/// Size of an itab before the first method: interface, type, hash.
/// <https://github.com/golang/go/blob/go1.26.5/src/internal/abi/iface.go#L14-L19>
const ITAB_METHODS: u64 = 24;
/// Maximum number of functions whose calls are searched. kube-scheduler 1.36 has 500.
const MAX_CALLERS: usize = 4_000;
/// Maximum size of their code. kube-scheduler 1.36 has 600 KB.
const MAX_CALLERS_CODE: u64 = 16 << 20;

pub(super) struct Builder<'a, P: Program> {
    pub(super) executable: &'a Executable<'a>,
    pub(super) functions: &'a Functions<'a>,
    pub(super) types: &'a Types<'a>,
    pub(super) found: &'a [goexe::Function<'a>],
    /// The calls made by functions in [`Program::CALLERS`], with the caller's name.
    pub(super) calls: Vec<(&'a str, Call)>,
    pub(super) goid_offset: u32,
    pub(super) sites: Vec<PlannedSite<P>>,
    pub(super) missing: Vec<Missing>,
    pub(super) not_yet: Vec<P::Function>,
    /// The fields on all followed paths.
    pub(super) structs: RefCell<Structs>,
    /// Debug information about the functions. Loaded on demand, because it is read completely.
    debug_info: OnceCell<Option<DebugInfo>>,
}

/// A function's signature, and the shape of an indirect call of it.
pub(super) struct Found {
    pub(super) signature: goexe::Signature,
    /// Offset of the function's address in the itab or closure, and the offset that their own address was loaded from.
    /// `None` if only direct calls are recognized.
    pub(super) called: Option<(u64, Option<u64>)>,
}

impl Found {
    /// Whether this is a call of the function. The offset of the base is known for a field only; then it must match.
    pub(super) fn called_by(&self, callee: Callee) -> bool {
        matches!((callee, self.called), (Callee::Indirect { offset, base }, Some((wanted, from)))
            if offset == wanted && (from.is_none() || base == from))
    }
}

impl<'a, P: Program> Builder<'a, P> {
    pub(super) fn new(
        executable: &'a Executable<'a>,
        functions: &'a Functions<'a>,
        types: &'a Types<'a>,
        found: &'a [goexe::Function<'a>],
    ) -> Result<Self, goexe::Error> {
        let structs = RefCell::default();
        let goid = follow(types, &structs, &types.find("runtime", "g")?, &["goid"])?;
        let (mut calls, mut code) = (Vec::new(), 0);
        for caller in found.iter().filter(|function| is_caller::<P>(function.name)).take(MAX_CALLERS) {
            code += caller.range.end - caller.range.start;
            if code > MAX_CALLERS_CODE {
                break;
            }
            // A function that does not decode contributes no calls. A row that needs one of them reports it.
            calls.extend(
                executable.calls(caller).unwrap_or_default().into_iter().map(|call| (caller.name, call)),
            );
        }
        Ok(Self {
            executable,
            functions,
            types,
            found,
            calls,
            goid_offset: u32::try_from(goid.offset)
                .map_err(|_| goexe::Error::NoType("plausible field `goid` of `runtime.g`".into()))?,
            sites: Vec::new(),
            missing: Vec::new(),
            not_yet: Vec::new(),
            structs,
            debug_info: OnceCell::new(),
        })
    }

    /// The functions that a row's symbol matches.
    pub(super) fn instances(&self, symbol: &str) -> Vec<&'a goexe::Function<'a>> {
        if is_generic(symbol) {
            self.found.iter().filter(|function| stands_for(symbol, function.name)).collect()
        } else {
            self.function(symbol).into_iter().collect()
        }
    }

    pub(super) fn function(&self, symbol: &str) -> Option<&'a goexe::Function<'a>> {
        // Two functions of one name are an ABI0 wrapper and the body. The body is larger.
        self.found
            .iter()
            .filter(|function| function.name == symbol)
            .max_by_key(|function| function.range.end - function.range.start)
    }

    /// An interface type, and how its methods are called: `None` if only direct calls are recognized, else the offset
    /// that the itab was loaded from, if known.
    pub(super) fn interface(&self, interface: Interface) -> Result<(Type, Option<Option<u64>>), Why> {
        match interface {
            Interface::Named(packages, name) => {
                let found = packages.iter().find_map(|package| self.types.find(package, name).ok());
                Ok((found.ok_or_else(|| Why(format!("no interface `{name}`")))?, None))
            }
            Interface::In(field) => {
                let path = self.field(field)?;
                // Distinguishes it from other interfaces with a method in the same slot.
                Ok((path.typ, Some(Some(path.offset))))
            }
            Interface::ElementOf(field) => {
                let holder = self.field(field)?.typ;
                // For a list element, the offset of the itab is unknown.
                let called = if holder.kind == Kind::Map { Some(None) } else { None };
                Ok((self.types.element(&holder)?, called))
            }
            Interface::FirstParameterOf(func) => {
                let func = self.types.find_unnamed(func)?;
                let signature = self.types.signature(&func)?;
                let first = signature.parameters.first();
                Ok((*first.ok_or_else(|| Why("the function type has no parameter".into()))?, Some(None)))
            }
        }
    }

    fn field(&self, Field(package, name, field): Field) -> Result<goexe::Path<'a>, Why> {
        let holder = self.types.find(package, name)?;
        Ok(follow(self.types, &self.structs, &holder, &[field])?)
    }

    /// The signature of an interface's method, and the offset of its address in an itab.
    pub(super) fn method(&self, interface: &Type, name: &str) -> Result<(goexe::Signature, u64), Why> {
        let methods = self.types.interface_methods(interface)?;
        let slot = methods
            .iter()
            .position(|(method, _)| *method == name)
            .ok_or_else(|| Why(format!("interface `{}` has no method `{name}`", self.name(interface))))?;
        Ok((self.types.signature(&methods[slot].1)?, ITAB_METHODS + 8 * slot as u64))
    }

    pub(super) fn signature(
        &self,
        row: &Row<P::Value>,
        function: &goexe::Function<'a>,
    ) -> Result<Option<Found>, Why> {
        let found = match row.signature {
            Signature::Unused => return Ok(None),
            Signature::Method(interface, name) => {
                let (interface, called) = self.interface(interface)?;
                let (mut signature, slot) = self.method(&interface, name)?;
                if is_by_shape(function.name) {
                    // Of a dictionary only its size matters: that of any pointer.
                    signature.parameters.insert(0, self.types.find_unnamed("*runtime.g")?);
                    self.checked(function, signature, true)?
                } else {
                    Found { signature, called: called.map(|base| (slot, base)) }
                }
            }
            Signature::ResultsOf(interface, name) => {
                let (signature, _) = self.method(&self.interface(interface)?.0, name)?;
                Found { signature, called: None }
            }
            Signature::Called(field) => {
                let path = self.field(field)?;
                Found { signature: self.types.signature(&path.typ)?, called: Some((0, Some(path.offset))) }
            }
            Signature::Closure(field) => {
                Found { signature: self.types.signature(&self.field(field)?.typ)?, called: None }
            }
            Signature::Declared(names) => {
                self.declared(function, names).or_else(|why| self.by_debug_info(function).ok_or(why))?
            }
            Signature::DeclaredWith(names, results) => {
                let Found { signature, called } = self.declared(function, names)?;
                Found {
                    signature: goexe::Signature { results: self.types_named(results)?, ..signature },
                    called,
                }
            }
            Signature::TypeArguments => {
                let names = split_arguments(type_arguments(function.name).unwrap_or_default());
                let types = names.map(|name| self.types.by_name(name));
                let parameters = types.collect::<Result<_, _>>()?;
                // The compiler emits no argument info for a wrapper, so there is nothing to check against.
                Found { signature: goexe::Signature { parameters, results: Vec::new() }, called: None }
            }
            Signature::CallerOf(list, methods) => {
                let implementation = self.types.element(&self.field(list)?.typ)?;
                let mut interface = implementation;
                let mut signature = goexe::Signature::default();
                for name in methods {
                    (signature, _) = self.method(&interface, name)?;
                    // Only needed if another method follows.
                    interface = signature.results.first().copied().unwrap_or(implementation);
                }
                let Some((context, rest)) = signature.parameters.split_first() else {
                    return Err(Why(format!("`{}` has no parameter", methods.join("."))));
                };
                let parameters = [*context, implementation].into_iter().chain(rest.iter().copied()).collect();
                self.checked(function, goexe::Signature { parameters, ..signature }, true)?
            }
        };
        Ok(Some(found))
    }

    /// A signature of these parameters, if it agrees with the function's argument info.
    pub(super) fn declared(&self, function: &goexe::Function<'a>, names: &[&str]) -> Result<Found, Why> {
        let parameters = self.types_named(names)?;
        self.checked(function, goexe::Signature { parameters, results: Vec::new() }, false)
    }

    /// The types with these names: see [`Signature::Declared`].
    fn types_named(&self, names: &[&str]) -> Result<Vec<Type>, Why> {
        let is_unnamed = |name: &str| name.starts_with("[]") || name.starts_with("map[");
        let types = names.iter().map(|name| match name.split_once(FIELD) {
            Some((of, fields)) => {
                let fields: Vec<&str> = fields.split(FIELD).collect();
                Ok(self.types.path(&self.types.by_name(of)?, &fields)?.typ)
            }
            None if is_unnamed(name) => self.types.find_unnamed(name),
            None => self.types.by_name(name),
        });
        Ok(types.collect::<Result<_, _>>()?)
    }

    /// The signature in the debug information, if it agrees with the function's argument info: for versions whose
    /// parameters are not declared in the table.
    fn by_debug_info(&self, function: &goexe::Function<'a>) -> Option<Found> {
        if self.executable.stripped() {
            return None;
        }
        let info = self.debug_info.get_or_init(|| {
            let names = self.found.iter().map(|function| function.name).collect();
            // Unreadable debug information counts as absent.
            self.executable.debug_info(&BTreeSet::new(), &names).ok().flatten()
        });
        let parameters = &info.as_ref()?.functions.get(function.name)?.parameters;
        let receiver = usize::from(has_receiver(function.name));
        let types = parameters.get(receiver..)?.iter().map(|name| {
            let name = name.as_deref()?;
            self.types.by_name(name).or_else(|_| self.types.find_unnamed(name)).ok()
        });
        let parameters = types.collect::<Option<Vec<_>>>()?;
        self.checked(function, goexe::Signature { parameters, results: Vec::new() }, false).ok()
    }

    /// Returns the signature if it agrees with the function's argument info.
    pub(super) fn checked(
        &self,
        function: &goexe::Function<'a>,
        signature: goexe::Signature,
        results_are_known: bool,
    ) -> Result<Found, Why> {
        let mut arguments = self.functions.arguments(function).unwrap_or_default();
        let receiver = has_receiver(function.name);
        // The compiler lists ten at most, and not the receiver of an instantiation by shape.
        if let (true, Some(first)) = (receiver && is_by_shape(function.name), arguments.first()) {
            let offset = first.offset.saturating_sub(first.size);
            arguments.insert(0, Argument { offset, size: first.size });
            arguments.truncate(10);
        }
        let results = results_are_known.then_some(signature.results.as_slice());
        if !self.types.fit(&signature.parameters, results, receiver, &arguments)? {
            let names: Vec<_> = signature.parameters.iter().map(|typ| self.name(typ)).collect();
            let (name, names) = (function.name, names.join(", "));
            return Err(Why(format!("the arguments of `{name}` are not ({names})")));
        }
        Ok(Found { signature, called: None })
    }

    pub(super) fn name(&self, typ: &Type) -> &'a str {
        self.types.string(typ).unwrap_or("?")
    }
}

/// Whether a function is a method, as `package.(*Type).method`. A closure in it is not.
pub(super) fn has_receiver(function: &str) -> bool {
    function.rsplit_once(").").is_some_and(|(_, method)| !method.contains('.'))
}

/// Whether a row's symbol stands for several instantiations.
pub(super) fn is_generic(symbol: &str) -> bool {
    symbol.contains(ANY_ARGUMENTS) || symbol.contains(ANY_SHAPE)
}

/// Whether a row's symbol with a placeholder matches a function.
pub(super) fn stands_for(symbol: &str, function: &str) -> bool {
    let by_shape = symbol.contains(ANY_SHAPE);
    let arguments = || {
        let (before, behind) = symbol.split_once(if by_shape { ANY_SHAPE } else { ANY_ARGUMENTS })?;
        function.strip_prefix(before)?.strip_prefix('[')?.strip_suffix(behind)?.strip_suffix(']')
    };
    arguments().is_some() && is_by_shape(function) == by_shape
}

/// Whether a function is an instantiation by GC shape, which takes a dictionary after its receiver.
pub(super) fn is_by_shape(function: &str) -> bool {
    type_arguments(function).is_some_and(|arguments| arguments.contains("go.shape."))
}

/// The package that a function is declared in.
pub(super) fn package(function: &str) -> Option<&str> {
    let path = function.split(['[', '(']).next()?;
    let last = path.rfind('/').map_or(0, |slash| slash + 1);
    path.get(..last + path[last..].find('.')?)
}

/// The type arguments in a function's name, delimited as in tracebacks.
/// <https://github.com/golang/go/blob/go1.26.5/src/runtime/traceback.go> (`funcNamePiecesForPrint`)
pub(super) fn type_arguments(function: &str) -> Option<&str> {
    function.get(function.find('[')? + 1..function.rfind(']')?)
}

/// Splits type arguments at commas, except those within brackets or braces.
fn split_arguments(arguments: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    arguments.split(move |letter| {
        depth += match letter {
            '[' | '{' | '(' => 1,
            ']' | '}' | ')' => -1,
            _ => 0,
        };
        letter == ',' && depth == 0
    })
}

/// Whether a function is declared in exactly this package.
pub(super) fn is_in(function: &str, package: &str) -> bool {
    function.strip_prefix(package).is_some_and(|rest| rest.starts_with('.'))
}

/// Whether the calls of a function are searched.
pub(super) fn is_caller<P: Program>(function: &str) -> bool {
    P::CALLERS.iter().any(|callers| is_in(function, callers))
}

/// Why a row of the table cannot be followed.
pub(super) struct Why(pub(super) String);

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<goexe::Error> for Why {
    fn from(error: goexe::Error) -> Self {
        Self(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_arguments_are_split_between_brackets_only() {
        let split = |arguments| split_arguments(arguments).collect::<Vec<_>>();
        assert_eq!(split("string"), ["string"]);
        assert_eq!(split("int,map[string]a.B[c,d],func(e, f)"), ["int", "map[string]a.B[c,d]", "func(e, f)"]);
        assert_eq!(split("struct { A, B int },c"), ["struct { A, B int }", "c"]);
        assert_eq!(type_arguments("a.(*B[c.D[e]]).f"), Some("c.D[e]"));
        assert_eq!(type_arguments("a.(*B).f"), None);
    }

    #[test]
    fn a_method_has_a_receiver_and_a_closure_in_it_has_none() {
        for method in ["a.b/c.(*T).f", "a.(*T[c.(*D).e]).f", "a.(*T[go.shape.int]).f", "a.(*T).f-fm"] {
            assert!(has_receiver(method), "{method}");
        }
        for other in ["a.b/c.f", "a.f.func1", "a.(*T).f.func1", "a.(*T).f.func1.2", "a.(*T).f.deferwrap1"] {
            assert!(!has_receiver(other), "{other}");
        }
    }

    #[test]
    fn a_symbol_stands_for_all_instantiations_but_shapes() {
        let symbol = "a.(*B[...]).f";
        assert!(stands_for(symbol, "a.(*B[string]).f"));
        for other in ["a.(*B[go.shape.string]).f", "a.(*B).f", "a.(*B[string]).g", "b.(*B[string]).f"] {
            assert!(!stands_for(symbol, other), "{other}");
        }
        let shapes = "a.(*B[go.shape...]).f";
        assert!(stands_for(shapes, "a.(*B[go.shape.string]).f"));
        for other in ["a.(*B[string]).f", "a.(*B).f", "a.(*B[go.shape.string]).g"] {
            assert!(!stands_for(shapes, other), "{other}");
        }
        assert!(is_generic(symbol) && is_generic(shapes) && !is_generic("a.(*B[go.shape.string]).f"));
        assert!(!stands_for("a.f", "a.f"));
        for function in
            ["x.io/a/b.f", "x.io/a/b.(*T).f", "x.io/a/b.(*T[c.io/d/e.F]).f", "x.io/a/b.f[c.io/d/e.F]"]
        {
            assert_eq!(package(function), Some("x.io/a/b"), "{function}");
        }
        assert!(is_in("a/b.f", "a/b") && !is_in("a/bc.f", "a/b") && !is_in("a/b", "a/b"));
    }
}
