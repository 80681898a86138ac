//! Programs that look like a scheduler: copies of its executable whose first instructions are others.

use std::{
    env,
    fs::{self, File, Permissions},
    io::Write as _,
    os::unix::fs::{FileExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use harness::wait::wait_until;
use serde_json::Value;
use xtask::process;

use crate::checks::{address, probed_sites};

/// `mov $34, %eax; syscall; jmp` back to it: waits for a signal, for ever.
const PAUSE: [u8; 9] = [0xb8, 34, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xf7];
/// `mov %rsp, %r14`: something readable where Go has the goroutine; `jmp` to an address, which follows.
const GO_ON: [u8; 4] = [0x49, 0x89, 0xe6, 0xe9];
/// `push %rbp`, where a probe sits.
const PUSH: u8 = 0x55;
/// After it: `pop %rbp; jmp` back to the push.
const AGAIN: [u8; 3] = [0x5d, 0xeb, 0xfc];

const TIMEOUT: Duration = Duration::from_secs(10);

/// `read(0, %rsp - 8, 1)`, then `execve` of the path behind it.
const SWAP: [u8; 37] = [
    0x31, 0xc0, 0x31, 0xff, 0x48, 0x8d, 0x74, 0x24, 0xf8, 0xba, 1, 0, 0, 0, 0x0f, 0x05, // read
    0x48, 0x8d, 0x3d, 14, 0, 0, 0, 0x31, 0xf6, 0x31, 0xd2, 0xb8, 59, 0, 0, 0, 0x0f, 0x05, // execve
    0x0f, 0x0b, 0x90, // ud2
];
/// The beginning of Go's build information.
const BUILD_INFO: &[u8] = b"\xff Go buildinf:";
/// The instruction int3, which the kernel writes at a probe.
const BREAKPOINT: u8 = 0xcc;

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
        self.write(&executable, self.code(does)?)?;
        self.run_with(&executable, user, arguments, Stdio::null())
    }

    /// The folder of the fakes.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes an executable.
    pub(super) fn write(&self, executable: &Path, code: Vec<u8>) -> Result<()> {
        fs::write(executable, code)?;
        Ok(fs::set_permissions(executable, Permissions::from_mode(0o755))?)
    }

    /// Starts an executable that is there.
    pub(super) fn run(&self, executable: &Path, user: &str) -> Result<Fake> {
        self.run_with(executable, user, &[], Stdio::null())
    }

    pub(super) fn run_with(
        &self,
        executable: &Path,
        user: &str,
        arguments: &[&str],
        input: Stdio,
    ) -> Result<Fake> {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--reuid", user, "--clear-groups"]).arg(executable);
        let child = command.args(arguments).stdin(input).spawn()?;
        let fake = Fake { child, executable: executable.to_owned() };
        // From here on, no process starts this executable.
        wait_until(&format!("{} to run", executable.display()), TIMEOUT, || {
            let runs = fs::read_link(format!("/proc/{}/exe", fake.pid()))?;
            Ok((runs == fake.executable).then_some(()))
        })?;
        Ok(fake)
    }

    /// A fake that executes this program at a signal.
    pub(super) fn swapping(&self, into: &Path) -> Result<Vec<u8>> {
        let path = into.to_str().context("the path is not text")?;
        let mut code = self.executable.clone();
        let first = [&SWAP[..], path.as_bytes(), &[0]].concat();
        let start = self.start_of(&code)?;
        code[start..][..first.len()].copy_from_slice(&first);
        Ok(code)
    }

    /// A program that waits and is not of Go, but has the scheduler's code where that has its probes.
    pub(super) fn innocent(&self) -> Result<Vec<u8>> {
        let mut code = self.code(Does::Waits)?;
        let infos: Vec<usize> = (0..code.len() - BUILD_INFO.len())
            .step_by(16)
            .filter(|at| code[*at..].starts_with(BUILD_INFO))
            .collect();
        ensure!(!infos.is_empty(), "the scheduler has no build information");
        infos.into_iter().for_each(|at| code[at] = 0);
        Ok(code)
    }

    /// A program that waits, whose last segment goes on to the end of a file of this length, without names of sections: what is
    /// in it can only be searched for, and is not there.
    pub(super) fn sparse(&self, bytes: u64) -> Result<Vec<u8>> {
        const HEADER: usize = 56;
        let mut code = self.innocent()?;
        let first = usize::try_from(u64::from_le_bytes(code[32..40].try_into()?))?;
        let count = usize::from(u16::from_le_bytes(code[56..58].try_into()?));
        let word =
            |code: &[u8], at: usize| Ok::<_, anyhow::Error>(u64::from_le_bytes(code[at..at + 8].try_into()?));
        let mut last = None;
        for at in (0..count).map(|number| first + number * HEADER) {
            // `PT_LOAD`; they are sorted by address.
            if code[at..at + 4] == [1, 0, 0, 0] {
                last = Some(at);
            }
        }
        let last = last.context("nothing is loaded")?;
        let length = bytes - word(&code, last + 8)?;
        // `p_filesz`, `p_memsz`; `e_shoff`, `e_shnum` and `e_shstrndx`.
        for at in [last + 32, last + 40] {
            code[at..at + 8].copy_from_slice(&length.to_le_bytes());
        }
        code[0x28..0x30].fill(0);
        code[0x3c..0x40].fill(0);
        Ok(code)
    }

    /// Checks that a process has a breakpoint at each site.
    pub(super) fn check_probed(&self, pid: u32) -> Result<()> {
        let (probed, sites) = self.probed(pid)?;
        ensure!(probed == sites, "process {pid} has breakpoints at {probed} of {sites} sites");
        Ok(())
    }

    /// Checks that a process has no breakpoint at any site.
    pub(super) fn check_untouched(&self, pid: u32) -> Result<()> {
        let (probed, sites) = self.probed(pid)?;
        ensure!(probed == 0, "process {pid} has breakpoints at {probed} of {sites} places");
        Ok(())
    }

    /// Checks that the code of a process, all of it, is that of a program of this model.
    pub(super) fn check_code(&self, pid: u32, program: &[u8]) -> Result<()> {
        // Code is one segment.
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let code = maps.lines().find_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let (range, rights, offset) = (fields.next()?, fields.next()?, fields.next()?);
            let number = |text| u64::from_str_radix(text, 16).ok();
            let (start, end) = range.split_once('-')?;
            (rights == "r-xp" && line.contains('/')).then_some((
                number(start)?,
                number(end)?,
                number(offset)?,
            ))
        });
        let (start, end, offset) = code.with_context(|| format!("process {pid} has no code"))?;
        let offset = usize::try_from(offset)?;
        let expected = program.get(offset..).context("its code is behind the end of the file")?;
        let length = usize::try_from(end - start)?.min(expected.len());
        let mut found = vec![0; length];
        File::open(format!("/proc/{pid}/mem"))?.read_exact_at(&mut found, start)?;
        let changed = found.iter().zip(expected).filter(|(found, expected)| found != expected).count();
        ensure!(changed == 0, "{changed} bytes of the code of process {pid} are changed");
        Ok(())
    }

    /// At how many sites a process has a breakpoint, and the number of sites.
    fn probed(&self, pid: u32) -> Result<(usize, usize)> {
        let memory = File::open(format!("/proc/{pid}/mem"))?;
        let (mut probed, sites) = (0, probed_sites(&self.plan)?);
        for address in &sites {
            let mut byte = [0];
            memory.read_exact_at(&mut byte, *address)?;
            probed += usize::from(byte[0] == BREAKPOINT);
        }
        Ok((probed, sites.len()))
    }

    /// File offset of the first instruction.
    fn start_of(&self, code: &[u8]) -> Result<usize> {
        // `e_entry` of a 64-bit ELF file.
        let entry = u64::from_le_bytes(code[24..32].try_into()?);
        let (site, offset) = self.entry_of(None)?;
        // Code is one segment.
        Ok(usize::try_from(entry - (site - offset))?)
    }

    pub(super) fn code(&self, does: Does) -> Result<Vec<u8>> {
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
        Ok((address(site)?, site["fileOffset"].as_u64().context("a site has no file offset")?))
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

    /// Tells it to execute its other program.
    pub(super) fn swap(&mut self) -> Result<()> {
        Ok(self.child.stdin.take().context("it has no standard input")?.write_all(b"x")?)
    }

    pub(super) fn is_alive(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = self.child.kill(); // It may have ended.
        let _ = self.child.wait(); // The wait for our own child does not fail.
    }
}
