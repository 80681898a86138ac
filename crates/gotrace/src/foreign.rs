//! Reading what belongs to others: the executable and the memory of a process.
//!
//! A file system can let its readers wait for ever, and not even a signal ends such a wait. So another process reads: this
//! executable again, which answers through a socket. Who asks waits until a deadline, and then gives it up.

use std::{
    ffi::OsString,
    fs,
    io::{self, Read as _, Write as _},
    net::Shutdown,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{fs::FileExt as _, net::UnixStream},
    },
    process::{Child, Command, ExitCode, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use goexe::ReadAt;

use crate::discover::Handle;

/// First argument of the process that reads. A pid follows.
const ARGUMENT: &str = "read-for-schedspan";
/// The most that is asked for at once.
const MAX_ASKED: usize = 256 << 10;
/// Length of a question: what, from where, how much.
const QUESTION: usize = 13;
/// Length of the head of an answer: how it went, and how many bytes follow.
const ANSWER: usize = 5;
/// Where the reading process has the executable: open, but not for reading.
const EXECUTABLE: &str = "/proc/self/fd/1";

/// What is read.
#[derive(Clone, Copy, Debug)]
enum What {
    File = 0,
    Memory = 1,
}

/// How it went: the bytes, an error, or no such bytes.
const BYTES: u8 = 0;
const FAILED: u8 = 1;
const NO_SUCH: u8 = 2;

/// Asks the process that reads. Clones ask the same one.
#[derive(Clone, Debug)]
pub struct Reader(Arc<Asked>);

#[derive(Debug)]
struct Asked {
    socket: UnixStream,
    until: Instant,
    late: AtomicBool,
    bytes: AtomicU64,
}

impl Reader {
    /// Starts a process that reads the executable behind a handle, and the memory of the process `pid`. It ends when all
    /// readers are dropped, unless it hangs: the caller keeps it, to end and to bury it. Answers that take longer than
    /// `patience`, all together, are errors.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn start(handle: &Handle, pid: u32, patience: Duration) -> io::Result<(Self, Child)> {
        let (ours, theirs) = UnixStream::pair()?;
        let child = Command::new("/proc/self/exe")
            .args([ARGUMENT, &pid.to_string()])
            .env_clear()
            .stdin(OwnedFd::from(theirs))
            .stdout(handle.as_fd().try_clone_to_owned()?)
            .stderr(Stdio::null())
            .spawn()?;
        Ok((Self::over(ours, patience), child))
    }

    fn over(socket: UnixStream, patience: Duration) -> Self {
        let (late, bytes) = (AtomicBool::new(false), AtomicU64::new(0));
        Self(Arc::new(Asked { socket, until: Instant::now() + patience, late, bytes }))
    }

    /// The executable, of this length, of which at most `budget` bytes are read.
    #[must_use]
    pub fn file(&self, len: u64, budget: u64) -> goexe::File {
        goexe::File::by(Box::new(OfFile(self.clone())), len, budget)
    }

    /// Reads the memory of the process.
    ///
    /// # Errors
    ///
    /// When it has ended, has no such memory, or it takes too long.
    pub fn memory(&self, buffer: &mut [u8], address: u64) -> io::Result<()> {
        self.read(What::Memory, buffer, address)
    }

    /// Whether an answer was given up.
    #[must_use]
    pub fn is_late(&self) -> bool {
        self.0.late.load(Ordering::Relaxed)
    }

    /// Bytes that were read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    fn read(&self, what: What, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut at = offset;
        for part in buffer.chunks_mut(MAX_ASKED) {
            if let Err(error) = self.ask(what, part, at) {
                // A late answer must not be taken for that of the next question.
                let _ = self.0.socket.shutdown(Shutdown::Both);
                return Err(error);
            }
            at += part.len() as u64;
        }
        Ok(())
    }

    fn ask(&self, what: What, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let Asked { socket, until, late, bytes } = &*self.0;
        let is_late = || {
            late.store(true, Ordering::Relaxed);
            io::Error::new(
                io::ErrorKind::TimedOut,
                "it does not answer: its file system hangs or is too slow",
            )
        };
        let told = |error: io::Error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => is_late(),
            _ => io::Error::new(error.kind(), format!("the process that reads it has ended: {error}")),
        };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(is_late());
        }
        socket.set_read_timeout(Some(left))?;
        let mut question = [0; QUESTION];
        question[0] = what as u8;
        question[1..9].copy_from_slice(&offset.to_le_bytes());
        question[9..].copy_from_slice(&(buffer.len() as u32).to_le_bytes());
        let mut socket = socket;
        socket.write_all(&question).map_err(told)?;
        let mut head = [0; ANSWER];
        socket.read_exact(&mut head).map_err(told)?;
        let [how, length @ ..] = head;
        let length = u32::from_le_bytes(length) as usize;
        match how {
            BYTES if length == buffer.len() => {
                socket.read_exact(buffer).map_err(told)?;
                bytes.fetch_add(length as u64, Ordering::Relaxed);
                Ok(())
            }
            NO_SUCH => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => {
                let mut why = vec![0; length.min(MAX_ASKED)];
                socket.read_exact(&mut why).map_err(told)?;
                Err(io::Error::other(String::from_utf8_lossy(&why).into_owned()))
            }
        }
    }
}

struct OfFile(Reader);

impl ReadAt for OfFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read(What::File, buffer, offset)
    }
}

/// Whether this process was started to read for another one: then this is all that it does, and its exit code.
#[must_use]
pub fn serve(mut arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    if arguments.nth(1)? != ARGUMENT {
        return None;
    }
    let pid = arguments.next()?.into_string().ok()?;
    let socket = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from);
    // An error is the end of the process that asks.
    let _ = socket.and_then(|socket| answer(&socket, EXECUTABLE, &format!("/proc/{pid}/mem")));
    Some(ExitCode::SUCCESS)
}

fn answer(mut socket: &UnixStream, executable: &str, memory: &str) -> io::Result<()> {
    let (mut executable, mut memory) = (Lazy::new(executable), Lazy::new(memory));
    let mut question = [0; QUESTION];
    let mut buffer = Vec::new();
    loop {
        socket.read_exact(&mut question)?;
        let from = if question[0] == What::File as u8 { &mut executable } else { &mut memory };
        let number = |range: std::ops::Range<usize>| {
            question[range].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        let (offset, length) = (number(1..9), number(9..QUESTION) as usize);
        buffer.resize(length.min(MAX_ASKED), 0);
        let (how, answer) = match from.open().and_then(|file| file.read_exact_at(&mut buffer, offset)) {
            Ok(()) => (BYTES, &buffer[..]),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => (NO_SUCH, &[][..]),
            Err(error) => {
                buffer = error.to_string().into_bytes();
                (FAILED, &buffer[..])
            }
        };
        let [a, b, c, d] = (answer.len() as u32).to_le_bytes();
        socket.write_all(&[how, a, b, c, d])?;
        socket.write_all(answer)?;
    }
}

/// A file that is opened when it is first read.
struct Lazy<'a> {
    path: &'a str,
    file: Option<fs::File>,
}

impl<'a> Lazy<'a> {
    fn new(path: &'a str) -> Self {
        Self { path, file: None }
    }

    fn open(&mut self) -> io::Result<&fs::File> {
        if self.file.is_none() {
            self.file = Some(fs::File::open(self.path)?);
        }
        self.file.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Asks a thread that reads these files.
    fn reader(executable: &str, memory: &'static str) -> Reader {
        let (ours, theirs) = UnixStream::pair().expect("there are sockets");
        let executable = executable.to_owned();
        drop(thread::spawn(move || answer(&theirs, &executable, memory)));
        Reader::over(ours, PATIENCE)
    }

    #[test]
    fn what_another_process_reads_is_what_is_there() {
        let path = std::env::current_exe().expect("this test runs");
        let bytes = fs::read(&path).expect("it can be read");
        let reader = reader(path.to_str().expect("it is text"), "/proc/self/mem");
        let mut read = vec![0; 3 * MAX_ASKED + 5];
        reader.read(What::File, &mut read, 7).expect("it is there");
        assert_eq!(read, bytes[7..7 + read.len()]);
        let secret = Box::new(*b"in memory");
        let mut read = [0; 9];
        reader
            .memory(&mut read, std::ptr::from_ref(&*secret).expose_provenance() as u64)
            .expect("it is there");
        assert_eq!(read, *secret);
        assert_eq!(reader.bytes(), 3 * MAX_ASKED as u64 + 5 + 9);
    }

    #[test]
    fn what_is_not_there_is_an_error_that_says_so() {
        let shorter = reader("/proc/self/exe", "/nowhere").file(1 << 30, u64::MAX);
        let error = goexe::Executable::parse(&shorter).expect_err("it has no GiB").to_string();
        assert!(error.contains("cut off while it was read"), "{error}");
        let file = reader("/nowhere", "/nowhere").file(1 << 20, u64::MAX);
        let error = goexe::Executable::parse(&file).expect_err("it is not there").to_string();
        assert!(error.contains("No such file"), "{error}");
        let error =
            reader("/proc/self/exe", "/proc/self/mem").memory(&mut [0; 8], 8).expect_err("nothing is at 8");
        assert!(error.to_string().contains("error"), "{error}");
    }

    #[test]
    fn a_reader_that_hangs_is_given_up() {
        // The other end does not answer.
        let (ours, _theirs) = UnixStream::pair().expect("there are sockets");
        let reader = Reader::over(ours, Duration::from_millis(20));
        assert!(!reader.is_late());
        let error =
            goexe::Executable::parse(&reader.file(1 << 20, u64::MAX)).expect_err("it hangs").to_string();
        assert!(error.contains("does not answer") && reader.is_late(), "{error}");
    }

    #[test]
    fn an_answer_of_another_length_is_no_answer() {
        let (ours, mut theirs) = UnixStream::pair().expect("there are sockets");
        let other = thread::spawn(move || {
            theirs.read_exact(&mut [0; QUESTION]).expect("it is asked");
            theirs.write_all(&[&[BYTES][..], &9_u32.to_le_bytes(), &[7; 9]].concat()).expect("it is read");
        });
        let (reader, mut read) = (Reader::over(ours, PATIENCE), [0; 8]);
        assert!(reader.memory(&mut read, 0).is_err());
        assert_eq!((read, reader.bytes()), ([0; 8], 0));
        other.join().expect("it does not panic");
    }

    #[test]
    fn a_command_line_of_another_kind_is_left_alone() {
        for line in [&["schedspan"][..], &["schedspan", "run"], &[], &["schedspan", "run", ARGUMENT, "1"]] {
            assert!(serve(line.iter().map(OsString::from)).is_none(), "{line:?}");
        }
    }
}
