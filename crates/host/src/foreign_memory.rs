//! What can only be read from another process's memory: its environment and its command line.
//!
//! Reading them takes a lock on that memory, and a process that maps a file on a hanging mount holds it until the
//! mount is back. Such a process is silent, and it may be any process on the host.
//!
//! Promised: nobody waits longer than [`Patience`], however many processes are silent, and all others are read
//! meanwhile; a silent process takes one thread, however often it is requested, and [`THREADS_MAX`] bounds them all;
//! a slow machine makes nobody silent; an idle reader waits a moment for the next call, so that a thousand calls in a
//! row do not start a thousand threads.
//! Absent: cancelling such a read, which is impossible.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::procfs::Stat;
use crate::tree::ProcessRef;

/// A read that takes longer no longer delays the remaining ones: another thread continues with them.
const HANDOVER: Duration = Duration::from_millis(20);
/// Readers in progress, including abandoned ones.
const THREADS_MAX: usize = 256;
/// They need little stack, and many may hang.
const STACK_BYTES: usize = 128 * 1024;
/// How long a reader waits for another call.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// How long a caller waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// For one process whose read sleeps.
    each: Duration,
    /// In all.
    total: Duration,
}

impl Patience {
    /// Of threads that have time: memory that was swapped out is read as well.
    pub(crate) const THREAD: Self = Self { each: Duration::from_millis(500), total: Duration::from_secs(20) };
    /// For the driver, which has no time.
    pub(crate) const DRIVER: Self = Self { each: Duration::from_millis(20), total: Duration::from_millis(20) };
}

/// Clones are cheap and share their state.
#[derive(Clone, Debug, Default)]
pub(crate) struct ForeignMemory {
    pool: Arc<Pool>,
}

#[derive(Debug, Default)]
struct Pool {
    readers: Mutex<Readers>,
    /// There is work for a reader that waits.
    work_came: Condvar,
}

#[derive(Default)]
struct Readers {
    threads: usize,
    /// Of these, those that wait for work.
    idle: usize,
    /// For waiting readers; never more than there are.
    work: VecDeque<Work>,
    /// Processes whose reads were abandoned, and when those began.
    silent: HashMap<ProcessRef, Instant>,
}

/// What a reader does in one call.
type Work = Box<dyn FnOnce() + Send>;

impl std::fmt::Debug for Readers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { threads, idle, work, silent } = self;
        let mut shown = formatter.debug_struct("Readers");
        shown.field("threads", threads).field("idle", idle).field("work", &work.len()).field("silent", silent).finish()
    }
}

/// One caller's query to many processes, which its readers answer one by one.
struct Call<T> {
    progress: Mutex<Progress<T>>,
    changed: Condvar,
}

struct Progress<T> {
    waiting: Vec<ProcessRef>,
    under_way: Vec<Read>,
    /// Threads that have not exited, whether they have begun or not.
    readers: usize,
    done: Vec<(ProcessRef, T)>,
    /// Nobody waits any more.
    is_over: bool,
}

#[derive(Clone, Copy)]
struct Read {
    member: ProcessRef,
    thread: rustix::process::Pid,
    begun: Instant,
}

impl ForeignMemory {
    /// As with as many readers that hang as there may be.
    #[cfg(test)]
    pub(crate) fn exhausted() -> Self {
        let memory = Self::default();
        memory.pool.readers.lock().threads = THREADS_MAX;
        memory
    }

    /// Reads from each process; silent ones are left out. An error: no thread is available.
    pub(crate) fn read_each<T, F>(
        &self,
        mut members: Vec<ProcessRef>,
        patience: Patience,
        read: F,
    ) -> io::Result<Vec<(ProcessRef, T)>>
    where
        T: Send + 'static,
        F: Fn(ProcessRef) -> T + Send + Sync + 'static,
    {
        {
            let silent = &self.pool.readers.lock().silent;
            members.retain(|member| silent.get(member).is_none_or(|begun| begun.elapsed() < patience.each));
        }
        if members.is_empty() {
            return Ok(Vec::new());
        }
        let (call, read) = (Arc::new(Call::of(members)), Arc::new(read));
        self.start_reader(&call, &read)?;
        let begun = Instant::now();
        let mut progress = call.progress.lock();
        while !progress.is_complete() {
            let before = progress.done.len();
            let _ = call.changed.wait_for(&mut progress, HANDOVER.min(patience.total));
            let mut has_thread = true;
            if progress.done.len() == before && progress.needs_reader() {
                has_thread = self.start_reader_unlocked(&call, &mut progress, &read);
            }
            let is_rest_silent = (progress.waiting.is_empty() || !has_thread) && progress.are_silent(patience.each);
            if is_rest_silent || begun.elapsed() >= patience.total {
                break;
            }
        }
        self.give_up(&mut progress);
        Ok(std::mem::take(&mut progress.done))
    }

    /// From one process. None: it is silent, or there is no thread.
    pub(crate) fn read_one<T, F>(&self, member: ProcessRef, patience: Patience, read: F) -> Option<T>
    where
        T: Send + 'static,
        F: Fn(ProcessRef) -> T + Send + Sync + 'static,
    {
        Some(self.read_each(vec![member], patience, read).ok()?.pop()?.1)
    }

    /// Reads in progress are left to their threads.
    fn give_up<T>(&self, progress: &mut Progress<T>) {
        progress.is_over = true;
        progress.waiting = Vec::new();
        let mut readers = self.pool.readers.lock();
        for Read { member, begun, thread } in &progress.under_way {
            // The machine is slow, not the process.
            if state_of(*thread) == Some('R') {
                continue;
            }
            if readers.silent.insert(*member, *begun).is_none() {
                tracing::warn!(pid = member.pid, "cannot read process memory: it may hang on a file system");
            }
        }
    }

    fn start_reader_unlocked<T, F>(
        &self,
        call: &Arc<Call<T>>,
        progress: &mut parking_lot::MutexGuard<'_, Progress<T>>,
        read: &Arc<F>,
    ) -> bool
    where
        T: Send + 'static,
        F: Fn(ProcessRef) -> T + Send + Sync + 'static,
    {
        parking_lot::MutexGuard::unlocked(progress, || self.start_reader(call, read).is_ok())
    }

    fn start_reader<T, F>(&self, call: &Arc<Call<T>>, read: &Arc<F>) -> io::Result<()>
    where
        T: Send + 'static,
        F: Fn(ProcessRef) -> T + Send + Sync + 'static,
    {
        call.progress.lock().readers += 1;
        let reader = Reader { pool: Arc::clone(&self.pool), call: Arc::clone(call), under_way: None };
        let read = Arc::clone(read);
        self.pool.run(Box::new(move || reader.run(&*read)))
    }
}

impl Pool {
    /// On a waiting reader, or on a new one. Dropped if there is none.
    fn run(self: &Arc<Self>, work: Work) -> io::Result<()> {
        {
            let mut readers = self.readers.lock();
            if readers.idle > readers.work.len() {
                readers.work.push_back(work);
                self.work_came.notify_one();
                return Ok(());
            }
            if readers.threads >= THREADS_MAX {
                drop(readers); // what is dropped with the work takes this lock
                return Err(io::Error::other("too many processes do not answer"));
            }
            readers.threads += 1;
        }
        let thread = ReaderThread { pool: Arc::clone(self) };
        let builder = std::thread::Builder::new().name("reader".to_owned()).stack_size(STACK_BYTES);
        builder.spawn(move || thread.run(work)).map(drop)
    }

    fn next_work(&self) -> Option<Work> {
        let mut readers = self.readers.lock();
        readers.idle += 1;
        let until = Instant::now() + IDLE_MAX;
        while readers.work.is_empty() && !self.work_came.wait_until(&mut readers, until).timed_out() {}
        readers.idle -= 1;
        readers.work.pop_front()
    }
}

/// Counted until it ends, also by a panic.
struct ReaderThread {
    pool: Arc<Pool>,
}

impl ReaderThread {
    fn run(self, first: Work) {
        let mut next = Some(first);
        while let Some(work) = next {
            work();
            next = self.pool.next_work();
        }
    }
}

impl Drop for ReaderThread {
    fn drop(&mut self) {
        self.pool.readers.lock().threads -= 1;
    }
}

impl<T> Call<T> {
    fn of(waiting: Vec<ProcessRef>) -> Self {
        let done = Vec::with_capacity(waiting.len());
        let progress = Progress { waiting, under_way: Vec::new(), readers: 0, done, is_over: false };
        Self { progress: Mutex::new(progress), changed: Condvar::new() }
    }
}

impl<T> Progress<T> {
    fn is_complete(&self) -> bool {
        self.readers == 0 || (self.waiting.is_empty() && self.under_way.is_empty())
    }

    /// Whether nobody is working on the remaining ones.
    fn needs_reader(&self) -> bool {
        let is_busy = self.under_way.len() == self.readers;
        !self.waiting.is_empty() && is_busy && self.under_way.iter().all(|read| read.begun.elapsed() >= HANDOVER)
    }

    /// Whether everything in progress sleeps in the kernel, and has for this long.
    fn are_silent(&self, patience: Duration) -> bool {
        let is_silent = |read: &Read| read.begun.elapsed() >= patience && is_asleep(read.thread);
        self.under_way.len() == self.readers && self.under_way.iter().all(is_silent)
    }
}

/// Whether one of our threads waits for something other than a CPU.
fn is_asleep(thread: rustix::process::Pid) -> bool {
    state_of(thread).is_some_and(|state| state != 'R')
}

/// Nothing can be read of a thread that has just exited.
fn state_of(thread: rustix::process::Pid) -> Option<char> {
    Stat::of(thread.as_raw_pid()).ok().map(|stat| stat.state)
}

/// Answers a call, and cleans up at its end, even after a panic.
struct Reader<T> {
    pool: Arc<Pool>,
    call: Arc<Call<T>>,
    under_way: Option<ProcessRef>,
}

impl<T> Reader<T> {
    fn run(mut self, read: &dyn Fn(ProcessRef) -> T) {
        let thread = rustix::thread::gettid();
        while let Some(member) = self.next(thread) {
            let answer = read(member);
            self.finish(Some(answer));
        }
    }

    fn next(&mut self, thread: rustix::process::Pid) -> Option<ProcessRef> {
        let mut progress = self.call.progress.lock();
        let member = if progress.is_over { None } else { progress.waiting.pop() }?;
        progress.under_way.push(Read { member, thread, begun: Instant::now() });
        self.under_way = Some(member);
        Some(member)
    }

    fn finish(&mut self, answer: Option<T>) {
        let Some(member) = self.under_way.take() else { return };
        let mut progress = self.call.progress.lock();
        progress.under_way.retain(|read| read.member != member);
        if progress.is_over {
            self.pool.readers.lock().silent.remove(&member);
            return;
        }
        progress.done.extend(answer.map(|answer| (member, answer)));
        if progress.is_complete() {
            self.call.changed.notify_all();
        }
    }
}

impl<T> Drop for Reader<T> {
    fn drop(&mut self) {
        self.finish(None);
        self.call.progress.lock().readers -= 1;
        self.call.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;

    fn members(count: i32) -> Vec<ProcessRef> {
        (1..=count).map(|pid| ProcessRef { pid, start_ticks: 1 }).collect()
    }

    fn busy(memory: &ForeignMemory) -> usize {
        let readers = memory.pool.readers.lock();
        readers.threads - readers.idle
    }

    #[test]
    fn calls_in_a_row_are_answered_by_one_thread() {
        let memory = ForeignMemory::default();
        let mut threads = HashSet::new();
        for _ in 0..100 {
            let thread = memory.read_one(members(1)[0], Patience::THREAD, |_| rustix::thread::gettid()).unwrap();
            threads.insert(thread);
            while busy(&memory) > 0 {
                std::thread::yield_now();
            }
        }

        assert_eq!(threads.len(), 1);
        let begun = Instant::now();
        while memory.pool.readers.lock().threads > 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "it stays for ever");
            std::thread::yield_now();
        }
    }

    /// Reads that hang for every hundredth until the other side is dropped, and how many were begun of those.
    fn hanging() -> (mpsc::Sender<()>, Arc<Mutex<usize>>, impl Fn(ProcessRef) -> i32 + Clone + Send + Sync + 'static) {
        let (release, hanging) = mpsc::channel::<()>();
        let (hanging, begun) = (Arc::new(Mutex::new(hanging)), Arc::new(Mutex::new(0)));
        let count = Arc::clone(&begun);
        let read = move |member: ProcessRef| {
            if member.pid % 100 == 0 {
                *count.lock() += 1;
                while hanging.lock().recv().is_ok() {}
            }
            member.pid
        };
        (release, begun, read)
    }

    #[test]
    fn all_others_of_a_thousand_are_read_while_some_are_silent_and_those_are_not_asked_again() {
        let memory = ForeignMemory::default();
        let (release, begun, read) = hanging();

        let first = memory.read_each(members(1000), Patience::THREAD, read.clone()).unwrap();
        let again = memory.read_each(members(1000), Patience::THREAD, read.clone()).unwrap();

        for answers in [first, again] {
            let answers: HashSet<i32> = answers.into_iter().map(|(_, answer)| answer).collect();
            assert_eq!(answers, (1..=1000).filter(|pid| pid % 100 != 0).collect());
        }
        assert_eq!(*begun.lock(), 10);
        // Those that are through are about to wait for more.
        while busy(&memory) > 10 {
            std::thread::yield_now();
        }
        drop(release);
        while busy(&memory) > 0 {
            std::thread::yield_now();
        }
        let answers = memory.read_each(members(1000), Patience::THREAD, read).unwrap();
        assert_eq!(answers.len(), 1000, "they answer again");
    }

    #[test]
    fn who_is_too_slow_for_the_driver_is_still_read_by_threads() {
        let memory = ForeignMemory::default();
        let member = members(1)[0];
        memory.pool.readers.lock().silent.insert(member, Instant::now());
        let patience = Patience { each: Duration::from_secs(3600), ..Patience::THREAD };

        let by_thread = memory.read_one(member, patience, |member| member.pid);
        let by_other = memory.read_one(member, Patience { each: Duration::ZERO, ..patience }, |member| member.pid);

        assert_eq!((by_thread, by_other), (Some(1), None));
    }

    #[test]
    fn a_reader_that_waits_for_a_cpu_makes_nobody_silent() {
        let memory = ForeignMemory::default();
        let is_released = Arc::new(AtomicBool::new(false));
        let held = Arc::clone(&is_released);
        let read = move |member: ProcessRef| {
            while !held.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            member.pid
        };

        let answer = memory.read_one(members(1)[0], Patience::DRIVER, read);
        let silent = memory.pool.readers.lock().silent.len();
        is_released.store(true, Ordering::Relaxed);

        assert_eq!((answer, silent), (None, 0));
    }

    #[test]
    fn a_reader_that_panics_costs_its_own_answer() {
        let memory = ForeignMemory::default();
        let read = |member: ProcessRef| if member.pid == 2 { panic!("on purpose") } else { member.pid };

        let answers = memory.read_each(members(2), Patience::THREAD, read).unwrap();

        assert!(answers.len() <= 1);
        assert_eq!(memory.read_one(members(1)[0], Patience::THREAD, |member| member.pid), Some(1));
    }
}
