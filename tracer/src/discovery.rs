//! Looks at processes beside the draining thread: what is in their executable, and whether their memory has it.
//!
//! A file system or a process can let its readers wait, so each look has a deadline and a limit of bytes, few are made at once,
//! and the thread that drains the ring buffer only takes the answers.

use std::{
    collections::{HashMap, VecDeque},
    path::Path,
    process::Child,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use goexe::{BuildInfo, Error, Executable, File};
use gotrace::{
    discover::{Contents, FileId, Handle, Process, ProcessId, load_bias},
    foreign::Reader,
    memory::{Compared, Place},
    plan::{self, may_have},
    worker::{Planner, Prepared, Summary},
};
use spans::text::sentence;
use tracing::{error, warn};

/// How long a look may take. A scheduler takes a tenth of a second.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes that are read of one file. The largest known one, k3s, has 80 MB.
const MAX_READ: u64 = 192 << 20;
/// Bytes that are read of all files in a [`WINDOW`], before the next look begins.
const MAX_READ_OF_ALL: u64 = 768 << 20;
const WINDOW: Duration = Duration::from_secs(10);
/// Looks at the same time. Each holds what it has read.
const AT_ONCE: usize = 2;
/// Readers that do not end although they were killed. With more of them, nothing is looked at until one ends.
const MAX_HUNG: usize = 8;

/// The plan of an executable.
#[derive(Debug)]
pub struct Known {
    /// Summary over all programs in it.
    pub summary: Summary,
    /// The sites of all programs in it.
    pub places: Vec<Place>,
}

/// An executable with a program.
#[derive(Debug)]
pub struct Read {
    /// The file.
    pub handle: Handle,
    /// Its plan, with what the programs' workers need, in the order of the planners; or why there is none.
    pub plan: Result<(Known, Vec<Option<Prepared>>), String>,
    /// What the process has at the sites, if there are any.
    pub compared: Compared,
}

/// What a look has found.
#[derive(Debug)]
pub enum Finding {
    /// An executable without any of the programs.
    Nothing(Contents),
    /// An executable that was not known.
    Program(Box<Read>),
    /// What the process has at the sites of a known plan.
    Compared(Compared),
    /// Why it could not be looked at.
    Failed(String),
    /// Why the look was given up.
    GivenUp(String),
}

/// The end of a look.
#[derive(Debug)]
pub struct Answer {
    /// The process.
    pub process: Process,
    /// What was found.
    pub finding: Finding,
    reader: Option<Child>,
    bytes: u64,
}

/// Looks to come and looks under way.
#[derive(Debug)]
pub struct Discovery {
    planners: Arc<[Planner]>,
    waiting: VecDeque<(Process, Option<Arc<Known>>)>,
    running: HashMap<ProcessId, FileId>,
    sender: Sender<Answer>,
    answers: Receiver<Answer>,
    /// Processes that have read. They end by themselves, or are killed if they hang.
    readers: Vec<(ProcessId, Child)>,
    /// Whether it was said that too many hang.
    told: bool,
    window: (Instant, u64),
}

impl Discovery {
    /// Looks for these planners' programs.
    #[must_use]
    pub fn new(planners: Vec<Planner>) -> Self {
        let (sender, answers) = channel();
        Self {
            planners: planners.into(),
            waiting: VecDeque::new(),
            running: HashMap::new(),
            sender,
            answers,
            readers: Vec::new(),
            told: false,
            window: (Instant::now(), 0),
        }
    }

    /// Asks to look at a process. With a known plan, only its memory is looked at.
    pub fn ask(&mut self, process: Process, known: Option<Arc<Known>>) {
        // An executable need not be read for each process that runs it: the next ones find its plan.
        let covers =
            |id: ProcessId, file: FileId| id == process.id || known.is_none() && file == process.file;
        let is_covered = self.running.iter().any(|(id, file)| covers(*id, *file))
            || self.waiting.iter().any(|(waits, _)| covers(waits.id, waits.file))
            // Where one reader hangs, the next one would hang as well.
            || self.readers.iter().any(|(id, _)| *id == process.id);
        if !is_covered {
            self.waiting.push_back((process, known));
        }
    }

    /// Whether nothing is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// Takes the answers that are there, and begins the next looks.
    pub fn turn(&mut self) -> Vec<Answer> {
        let mut answers: Vec<Answer> = self.answers.try_iter().collect();
        for Answer { process, reader, bytes, .. } in &mut answers {
            self.running.remove(&process.id);
            self.readers.extend(reader.take().map(|reader| (process.id, reader)));
            self.window.1 += *bytes;
        }
        // An error is that it has ended already.
        self.readers.retain_mut(|(_, reader)| {
            let _ = reader.kill();
            matches!(reader.try_wait(), Ok(None))
        });
        if self.window.0.elapsed() > WINDOW {
            self.window = (Instant::now(), 0);
        }
        if self.readers.len() >= MAX_HUNG {
            if !std::mem::replace(&mut self.told, true) {
                error!(
                    "no further process is looked at, because {MAX_HUNG} readers hang and cannot be killed"
                );
            }
            return answers;
        }
        while self.running.len() < AT_ONCE && self.window.1 < MAX_READ_OF_ALL {
            let Some((process, known)) = self.waiting.pop_front() else { break };
            let (planners, sender) = (Arc::clone(&self.planners), self.sender.clone());
            let id = process.id;
            self.running.insert(id, process.file);
            let look = move || {
                // The daemon may have ended.
                let _ = sender.send(look(&planners, process, known.as_deref()));
            };
            if let Err(error) = thread::Builder::new().name("look".into()).spawn(look) {
                self.running.remove(&id);
                warn!("cannot start a thread to look at processes: {error}");
            }
        }
        answers
    }
}

impl Drop for Discovery {
    fn drop(&mut self) {
        for (_, reader) in &mut self.readers {
            let _ = reader.kill(); // It may have ended.
        }
    }
}

/// Looks at one process.
pub(crate) fn look(planners: &[Planner], process: Process, known: Option<&Known>) -> Answer {
    let pid = process.id.pid;
    let started = Handle::of(pid)
        .and_then(|handle| Reader::start(&handle, pid, PATIENCE).map(|reader| (handle, reader)));
    let (handle, (reader, child)) = match started {
        Ok(started) => started,
        Err(error) => {
            let finding = Finding::Failed(error.to_string());
            return Answer { process, finding, reader: None, bytes: 0 };
        }
    };
    let found = if handle.contents.file != process.file {
        Err("it executes another file by now".to_owned())
    } else if let Some(Known { summary, places }) = known {
        compare(&reader, pid, summary, places).map(Finding::Compared)
    } else {
        read(planners, handle, &reader, pid)
    };
    let finding = found
        .unwrap_or_else(|why| if reader.is_late() { Finding::GivenUp(why) } else { Finding::Failed(why) });
    Answer { process, finding, bytes: reader.bytes(), reader: Some(child) }
}

fn read(planners: &[Planner], handle: Handle, reader: &Reader, pid: u32) -> Result<Finding, String> {
    let file = reader.file(handle.contents.file.bytes, MAX_READ);
    let Some(planned) = plan(planners, &file, &handle.path)? else {
        return Ok(Finding::Nothing(handle.contents));
    };
    if !handle.is_unchanged() {
        return Err("its file has changed while it was read".to_owned());
    }
    let mut compared = Compared::default();
    let plan = match planned {
        Err(why) => Err(why),
        Ok(prepared) => {
            let known = merged(&prepared);
            compared = compare(reader, pid, &known.summary, &known.places)?;
            Ok((known, prepared))
        }
    };
    Ok(Finding::Program(Box::new(Read { handle, plan, compared })))
}

fn compare(reader: &Reader, pid: u32, summary: &Summary, places: &[Place]) -> Result<Compared, String> {
    let bias = load_bias(pid, summary.identity.entry_point).map_err(|error| error.to_string())?;
    Compared::of(places, bias, |buffer, address| reader.memory(buffer, address))
        .map_err(|error| format!("its memory cannot be read: {error}"))
}

fn merged(prepared: &[Option<Prepared>]) -> Known {
    let places = prepared.iter().flatten().flat_map(|prepared| &prepared.places).copied().collect();
    let summaries = prepared.iter().flatten().map(|prepared| prepared.summary.clone());
    Known { summary: summaries.reduce(Summary::with).unwrap_or_default(), places }
}

/// What the planners make of an executable, or why they cannot.
type Planned = Result<Vec<Option<Prepared>>, String>;

/// Plans an executable for each program that it contains; `None` if it contains none. An error if it cannot be read.
fn plan(planners: &[Planner], file: &File, path: &Path) -> Result<Option<Planned>, String> {
    let opened = BuildInfo::of(file).and_then(|info| {
        let may = planners.iter().any(|planner| may_have(&info, planner.markers));
        if may { Executable::parse(file).map(Some) } else { Ok(None) }
    });
    // What is not there because a read failed is not absent.
    file.intact().map_err(|error| error.to_string())?;
    let executable = match opened {
        Ok(Some(executable)) => executable,
        Ok(None) | Err(Error::Elf(_) | Error::NotGo(_)) => return Ok(None),
        Err(error) => return unreadable(planners, path, &error),
    };
    let functions = match executable.functions() {
        Ok(functions) => functions,
        Err(error) => return unreadable(planners, path, &error),
    };
    let mut prepared = Vec::new();
    for planner in planners {
        match planner.plan(&executable, &functions).transpose() {
            Ok(made) => prepared.push(made),
            Err(plan::Error::Executable(error @ Error::Read(_))) => return Err(error.to_string()),
            Err(error) => return Ok(Some(Err(sentence(&error)))),
        }
    }
    // A program may not have been found because a read failed.
    executable.intact().map_err(|error| error.to_string())?;
    if prepared.iter().all(Option::is_none) {
        return Ok(None);
    }
    for (planner, prepared) in planners.iter().zip(&prepared) {
        for missing in prepared.iter().flat_map(|prepared| &prepared.summary.missing) {
            let (program, function) = (planner.program, &missing.function);
            warn!(program, function, "{}; the result: {}", missing.why, missing.without);
        }
    }
    Ok(Some(Ok(prepared)))
}

/// Reports a Go executable whose tables cannot be read, if it is called like one of the programs: otherwise it is silently
/// not traced.
fn unreadable(planners: &[Planner], path: &Path, error: &Error) -> Result<Option<Planned>, String> {
    if let Error::Read(_) = error {
        return Err(error.to_string());
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let named = planners.iter().flat_map(|planner| planner.file_names).any(|part| name.contains(part));
    Ok(named.then(|| Err(error.to_string())))
}

/// Whether an executable is still that of a process.
pub(crate) fn still_runs(process: &Process) -> bool {
    let Process { id, file, .. } = process;
    ProcessId::of(id.pid) == Some(*id) && FileId::of(id.pid) == Some(*file)
}
