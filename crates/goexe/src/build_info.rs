//! Build information of the Go linker: `.go.buildinfo`.

use crate::{
    Error,
    image::{Image, Region},
    source::{Bytes, Source},
};

/// The Go version and the modules of an executable, as `go version -m` shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildInfo {
    /// For example `go1.26.5`.
    pub go_version: String,
    /// The main module.
    pub main: Option<Module>,
    /// Its dependencies, in the file's order.
    pub dependencies: Vec<Module>,
}

/// A Go module in an executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Import path.
    pub path: String,
    /// Version; for a replaced module that of the replacement. It can be `(devel)`.
    pub version: String,
}

const MAGIC: &[u8] = b"\xff Go buildinf:";
/// Flag of inline strings after the header, from Go 1.18 on
/// (<https://github.com/golang/go/blob/go1.26.5/src/debug/buildinfo/buildinfo.go#L220-L260>).
const INLINE_STRINGS: u8 = 2;
const HEADER: u64 = 32;
/// Maximum length of the version and of the module list. A scheduler's list has 20 KB.
const MAX_VERSION: u64 = 256;
const MAX_MODULES: u64 = 1 << 20;
const ALIGN: u64 = 16;

impl BuildInfo {
    /// Reads the build information alone: a few kilobytes.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or is not a Go executable of a supported version.
    pub fn of<'a>(source: impl Into<Source<'a>>) -> Result<Self, Error> {
        let source = source.into();
        source.unless_it_failed(Image::parse(source).and_then(|image| Self::parse(&image)))
    }

    pub(crate) fn parse(image: &Image<'_>) -> Result<Self, Error> {
        let (address, data) = find(image).ok_or_else(|| Error::NotGo("it has no Go build info".into()))?;
        let header = data.begin(HEADER);
        if header.and_then(|header| header.get(15)).is_none_or(|flags| flags & INLINE_STRINGS == 0) {
            return Err(Error::GoVersion {
                version: "before go1.18".into(),
                reason: "its build info has no inline strings; Go 1.18 is the oldest supported version"
                    .into(),
            });
        }
        let read = |what: &str, at: u64, most: u64| {
            let broken = |why: &str| Error::malformed("build info", address, format!("the {what} is {why}"));
            let (length, used) = data.varint(at).ok_or_else(|| broken("cut off"))?;
            let length = u64::from(length);
            if length > most {
                return Err(broken("too long to be one"));
            }
            let string = data.read(at + used, length).ok_or_else(|| broken("cut off"))?;
            Ok((string, at + used + length))
        };
        let (go_version, next) = read("Go version", HEADER, MAX_VERSION)?;
        let (modules, _) = read("module list", next, MAX_MODULES)?;
        let mut info = Self { go_version: text(&go_version), ..Self::default() };
        // The list is between two 16-byte marks.
        if let Some(list) = modules.get(16..modules.len().saturating_sub(16)) {
            info.read_modules(&text(list));
        }
        Ok(info)
    }

    fn read_modules(&mut self, list: &str) {
        let mut last_is_main = false;
        for line in list.lines() {
            let mut parts = line.split('\t');
            let (kind, path, version) = (parts.next(), parts.next(), parts.next());
            let (Some(kind), Some(path)) = (kind, path) else { continue };
            let module = Module { path: path.to_owned(), version: version.unwrap_or_default().to_owned() };
            match kind {
                "mod" => {
                    self.main = Some(module);
                    last_is_main = true;
                }
                "dep" => {
                    self.dependencies.push(module);
                    last_is_main = false;
                }
                // A replacement follows the replaced module.
                "=>" if !module.version.is_empty() => {
                    let replaced =
                        if last_is_main { self.main.as_mut() } else { self.dependencies.last_mut() };
                    if let Some(replaced) = replaced {
                        replaced.version = module.version;
                    }
                }
                _ => {}
            }
        }
    }

    /// The version of a module, main or dependency.
    #[must_use]
    pub fn module_version(&self, path: &str) -> Option<&str> {
        self.main
            .iter()
            .chain(&self.dependencies)
            .find(|module| module.path == path)
            .map(|m| m.version.as_str())
    }

    /// The Go minor version, 26 for `go1.26.5`; `None` for development builds.
    #[must_use]
    pub fn go_minor(&self) -> Option<u32> {
        let rest = self.go_version.strip_prefix("go1.")?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).map_or(rest, |end| &rest[..end]);
        digits.parse().ok()
    }
}

/// Finds the section by its name or, if the names are removed, by its magic at an aligned address
/// (<https://github.com/golang/go/blob/go1.26.5/src/debug/buildinfo/buildinfo.go#L40-L60>).
fn find<'a>(image: &Image<'a>) -> Option<(u64, Bytes<'a>)> {
    let section = image.section(&[".go.buildinfo", ".data.rel.ro.go.buildinfo"]);
    let found = |region: Region<'a>| {
        let fits = |at: u64| (region.address + at).is_multiple_of(ALIGN);
        let at = *region.data.places(MAGIC, 1, fits).first()?;
        Some((region.address + at, region.data.from(at)?))
    };
    section.and_then(found).or_else(|| image.data_segments().find_map(found))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_module_has_its_replacements_version() {
        let mut info = BuildInfo { go_version: "go1.26.5".into(), ..BuildInfo::default() };
        info.read_modules(
            "path\tk8s.io/kubernetes/cmd/kube-scheduler\nmod\tk8s.io/kubernetes\tv1.36.4\th1:x=\n\
             dep\tk8s.io/client-go\tv0.0.0\n=>\tk8s.io/client-go\tv0.36.4\th1:y=\n\
             dep\tgolang.org/x/net\tv0.56.0\th1:z=\nbuild\t-trimpath=true\n",
        );
        assert_eq!(info.module_version("k8s.io/kubernetes"), Some("v1.36.4"));
        assert_eq!(info.module_version("k8s.io/client-go"), Some("v0.36.4"));
        assert_eq!(info.module_version("golang.org/x/net"), Some("v0.56.0"));
        assert_eq!(info.module_version("absent"), None);
    }

    #[test]
    fn the_go_minor_is_found_in_releases_and_candidates() {
        for (version, minor) in [("go1.26.5", Some(26)), ("go1.27rc1", Some(27)), ("devel +abc", None)] {
            let info = BuildInfo { go_version: version.into(), ..BuildInfo::default() };
            assert_eq!(info.go_minor(), minor, "{version}");
        }
    }
}
