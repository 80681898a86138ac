//! The Pod or service that a cgroup belongs to, by the lines of `/proc/PID/cgroup`. Pure.
//!
//! A line is `HIERARCHY:CONTROLLERS:PATH`. With cgroup v2 there is one, of hierarchy 0; with v1 one for each mounted
//! hierarchy. The path begins at the root of the reader's cgroup namespace: for a daemon in a container, other
//! processes are at `/../../...`.
//!
//! Some processes may make cgroups below their own, by any name: those in the sessions of a user, and in containers with a
//! writable cgroup file system. So the whole path counts, from the root on: a Pod's cgroup is where the kubelet makes it,
//! and the first one on the way.

use std::fmt;

/// Who a cgroup belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A container of a Pod.
    Pod(Uid),
    /// A service of systemd, such as `k3s.service`.
    Service(String),
    /// Neither, or its lines contradict each other.
    Elsewhere,
}

/// UID of a Pod, as the kubelet knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uid(String);

impl Uid {
    /// Reads a UID in the name of a cgroup. systemd has `-` between parents and children, so the kubelet writes `_`.
    fn of(text: &str) -> Option<Self> {
        let text = text.replace('_', "-");
        let groups: Vec<usize> = text.split('-').map(str::len).collect();
        let hexadecimal = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'));
        (hexadecimal && (groups == [8, 4, 4, 4, 12] || groups == [32])).then_some(Self(text))
    }

    /// Whether it is that of a static Pod: a hash, which the API server never gives.
    /// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/kubelet/config/common.go>, `applyDefaults`.
    #[must_use]
    pub fn is_static(&self) -> bool {
        !self.0.contains('-')
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A path as the reader sees it: first up to an ancestor that it shares with the reader's root, then down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Path<'a> {
    up: usize,
    down: Vec<&'a str>,
}

impl<'a> Path<'a> {
    fn of(text: &'a str) -> Self {
        let names = text.split('/').filter(|name| !name.is_empty());
        let up = names.clone().take_while(|name| *name == "..").count();
        Self { up, down: names.skip(up).collect() }
    }
}

/// Where the host's cgroups begin in each hierarchy, as the reader sees it: the cgroup of process 1, without the leaf that
/// systemd or a container's first process makes for itself.
#[derive(Clone, Debug, Default)]
pub struct Bases(Vec<Base>);

#[derive(Clone, Debug)]
struct Base {
    hierarchy: String,
    up: usize,
    down: Vec<String>,
}

impl Bases {
    /// Reads the lines of process 1.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let base = |(hierarchy, path): (&str, &str)| {
            let Path { up, mut down } = Path::of(path);
            if matches!(down.last(), Some(&("init.scope" | "init"))) {
                down.pop();
            }
            let down = down.into_iter().map(str::to_owned).collect();
            Base { hierarchy: hierarchy.to_owned(), up, down }
        };
        Self(lines(text).map(base).collect())
    }

    /// The names on the way from the host's root, and whether they are all of them: of those that the process shares
    /// with the reader, the kernel does not tell the names.
    fn below<'a>(&self, hierarchy: &str, path: &'a str) -> Option<(Vec<&'a str>, bool)> {
        let Base { up, down, .. } = self.0.iter().find(|base| base.hierarchy == hierarchy)?;
        let mut path = Path::of(path);
        if path.up < *up {
            return Some((path.down, false));
        }
        let is_below =
            path.up == *up && path.down.len() >= down.len() && down.iter().eq(&path.down[..down.len()]);
        is_below.then(|| (path.down.split_off(down.len()), true))
    }
}

/// Hierarchy and path of each line.
fn lines(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| {
        let (hierarchy, rest) = line.split_once(':')?;
        Some((hierarchy, rest.split_once(':')?.1))
    })
}

/// Who the cgroups of a process belong to.
#[must_use]
pub fn place(text: &str, bases: &Bases) -> Place {
    let (mut pods, mut services, mut others) = (Vec::new(), Vec::new(), 0);
    for (hierarchy, path) in lines(text) {
        let Some((names, whole)) = bases.below(hierarchy, path) else {
            others += 1;
            continue;
        };
        match place_of(&names, whole) {
            Place::Pod(uid) => pods.push(uid),
            Place::Service(name) => services.push(name),
            // A hierarchy without this process.
            Place::Elsewhere => others += usize::from(!names.is_empty()),
        }
    }
    pods.dedup();
    services.dedup();
    match (&pods[..], &services[..]) {
        // With v1, containers may be in their runtime's own service where a hierarchy has no controller.
        ([uid], _) => Place::Pod(uid.clone()),
        ([], [name]) if others == 0 => Place::Service(name.clone()),
        _ => Place::Elsewhere,
    }
}

/// The path of a process in the hierarchy that tells most of it; `None` if the kernel does not tell all of it.
#[must_use]
pub fn path(text: &str, bases: &Bases) -> Option<String> {
    let whole = lines(text).filter_map(|(hierarchy, path)| {
        let (names, whole) = bases.below(hierarchy, path)?;
        whole.then(|| format!("/{}", names.join("/")))
    });
    whole.max_by_key(|path| path.matches('/').count() + usize::from(path.len() > 1))
}

/// Whether a path is this cgroup, or below it.
#[must_use]
pub fn is_below(path: &str, of: &str) -> bool {
    path.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn place_of(names: &[&str], whole: bool) -> Place {
    if let Some(uid) = by_systemd(names, whole).or_else(|| by_cgroupfs(names, whole)) {
        return Place::Pod(uid);
    }
    match names {
        // Not below it: a service may hand cgroups below its own to others.
        ["system.slice", slices @ .., service]
            if whole
                && service.ends_with(".service")
                && slices.iter().all(|slice| slice.ends_with(".slice")) =>
        {
            Place::Service((*service).to_owned())
        }
        _ => Place::Elsewhere,
    }
}

/// The Pod of a path that systemd made for the kubelet, as `kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice/...`:
/// the name of a slice begins with those of its parents. <https://www.freedesktop.org/software/systemd/man/257/systemd.slice.html>
fn by_systemd(names: &[&str], whole: bool) -> Option<Uid> {
    let is_pod = |name: &&str| name.ends_with(".slice") && name.contains("kubepods") && name.contains("-pod");
    let at = names.iter().position(is_pod)?;
    let slice = names[at].strip_suffix(".slice")?;
    let (parents, uid) = slice.rsplit_once("-pod")?;
    let below_root = parents.strip_prefix("kubelet-").unwrap_or(parents);
    let is_known = matches!(below_root, "kubepods" | "kubepods-burstable" | "kubepods-besteffort");
    let ends = parents.match_indices('-').map(|(end, _)| end).chain([parents.len()]);
    let expected: Vec<String> = ends.map(|end| format!("{}.slice", &parents[..end])).collect();
    let fits = if whole { expected.len() == at } else { expected.len() >= at };
    let fits =
        fits && names[..at].iter().rev().zip(expected.iter().rev()).all(|(name, expected)| name == expected);
    (is_known && fits).then(|| Uid::of(uid))?
}

/// The Pod of a path that the kubelet made itself, as `kubepods/burstable/podUID/...`.
fn by_cgroupfs(names: &[&str], whole: bool) -> Option<Uid> {
    const ABOVE: [&[&str]; 6] = [
        &["kubepods"],
        &["kubepods", "burstable"],
        &["kubepods", "besteffort"],
        &["kubelet", "kubepods"],
        &["kubelet", "kubepods", "burstable"],
        &["kubelet", "kubepods", "besteffort"],
    ];
    let at = names.iter().position(|name| name.starts_with("pod"))?;
    let above = &names[..at];
    let fits = ABOVE.iter().any(|known| if whole { *known == above } else { known.ends_with(above) });
    fits.then(|| Uid::of(names[at].strip_prefix("pod")?))?
}
