//! Programs that look like a scheduler: copies of its executable whose first instructions are others.

use std::{
    env,
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use harness::wait::wait_until;
use serde_json::Value;
use xtask::process;

/// `mov $34, %eax; syscall; jmp` back to it: waits for a signal, for ever.
const PAUSE: [u8; 9] = [0xb8, 34, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xf7];
/// `mov %rsp, %r14`: something readable where Go has the goroutine; `jmp` to an address, which follows.
const GO_ON: [u8; 4] = [0x49, 0x89, 0xe6, 0xe9];
/// `push %rbp`, where a probe sits.
const PUSH: u8 = 0x55;
/// After it: `pop %rbp; jmp` back to the push.
const AGAIN: [u8; 3] = [0x5d, 0xeb, 0xfc];

const TIMEOUT: Duration = Duration::from_secs(10);

/// A user without any right.
pub(super) const UNPRIVILEGED: &str = "65534";

/// What a fake does.
#[derive(Clone, Copy)]
pub(super) enum Does {
    /// Nothing.
    Waits,
    /// Hits the probe at the entry of this function in a loop.
    Hits(&'static str),
}

/// The plan of a scheduler, to make fakes of it.
pub(super) struct Model {
    executable: Vec<u8>,
    plan: Value,
    dir: PathBuf,
}

/// A running fake. It ends when it is dropped.
pub(super) struct Fake {
    child: Child,
    pub(super) executable: PathBuf,
}

impl Model {
    /// Reads the executable of a scheduler, with `schedspan inspect`. Fakes are in a folder of their own that all users can read.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub(super) fn of(scheduler: &Path, schedspan: &Path) -> Result<Self> {
        let mut inspect = Command::new(schedspan);
        let plan = process::output(inspect.args(["inspect", "--output", "json"]).arg(scheduler))?;
        let dir = env::temp_dir().join(format!("schedspan-fakes-{}", std::process::id()));
        fs::create_dir(&dir)?;
        fs::set_permissions(&dir, Permissions::from_mode(0o755))?;
        Ok(Self { executable: fs::read(scheduler)?, plan: serde_json::from_str(&plan)?, dir })
    }

    /// Starts a fake under this name, as root or another user.
    ///
    /// # Errors
    ///
    /// If the function is not probed at its entry, or the fake cannot be started.
    pub(super) fn start(&self, name: &str, does: Does, user: &str) -> Result<Fake> {
        self.start_with(name, does, user, &[])
    }

    /// The same with arguments.
    ///
    /// # Errors
    ///
    /// As for [`Model::start`].
    pub(super) fn start_with(&self, name: &str, does: Does, user: &str, arguments: &[&str]) -> Result<Fake> {
        let executable = self.dir.join(name);
        fs::write(&executable, self.code(does)?)?;
        fs::set_permissions(&executable, Permissions::from_mode(0o755))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--reuid", user, "--clear-groups"]).arg(&executable);
        let child = command.args(arguments).stdin(Stdio::null()).spawn()?;
        let fake = Fake { child, executable };
        // From here on, no process starts this executable.
        wait_until(&format!("{name} to run"), TIMEOUT, || {
            let runs = fs::read_link(format!("/proc/{}/exe", fake.pid()))?;
            Ok((runs == fake.executable).then_some(()))
        })?;
        Ok(fake)
    }

    fn code(&self, does: Does) -> Result<Vec<u8>> {
        let mut code = self.executable.clone();
        // `e_entry` of a 64-bit ELF file.
        let entry = u64::from_le_bytes(code[24..32].try_into()?);
        let (site, offset) = self.entry_of(match does {
            Does::Waits => None,
            Does::Hits(function) => Some(function),
        })?;
        // Code is one segment.
        let start = usize::try_from(entry - (site - offset))?;
        let first = match does {
            Does::Waits => PAUSE.to_vec(),
            Does::Hits(_) => {
                let at = usize::try_from(offset)?;
                ensure!(code[at] == PUSH, "the probe at {site:#x} is not on a push");
                code[at + 1..][..AGAIN.len()].copy_from_slice(&AGAIN);
                let behind = entry + GO_ON.len() as u64 + 4;
                let distance = i32::try_from(site.cast_signed() - behind.cast_signed())?;
                [&GO_ON[..], &distance.to_le_bytes()].concat()
            }
        };
        code[start..][..first.len()].copy_from_slice(&first);
        Ok(code)
    }

    /// Address and file offset of the probe at the entry of a function, or of any.
    fn entry_of(&self, function: Option<&str>) -> Result<(u64, u64)> {
        let is = |site: &&Value| {
            site["role"] == "entry" && function.is_none_or(|function| site["function"] == function)
        };
        let site = self.plan["sites"].as_array().into_iter().flatten().find(is);
        let site = site.with_context(|| format!("{function:?} is not probed at its entry"))?;
        let address = site["address"].as_str().and_then(|text| text.strip_prefix("0x"));
        let address = u64::from_str_radix(address.context("a site has no address")?, 16)?;
        Ok((address, site["fileOffset"].as_u64().context("a site has no file offset")?))
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir); // It is a folder for temporary files.
    }
}

impl Fake {
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = self.child.kill(); // It may have ended.
        let _ = self.child.wait(); // The wait for our own child does not fail.
    }
}
