//! Returns unused memory of this program to the host.
//!
//! glibc's allocator keeps a heap per thread, including what was freed in it. An agent usually has few threads, and
//! must not stay as large as its peak.

/// Larger blocks are not part of the heap, and are returned when freed. By default this grows with the largest block
/// ever freed.
#[cfg(target_env = "gnu")]
const LARGE_BYTES: libc::c_int = 128 * 1024;

/// One heap for all threads. Must be called before the first thread is started.
#[cfg(target_env = "gnu")]
pub fn use_one_heap() {
    #[allow(unsafe_code, reason = "there is no other way to tell the allocator")]
    // SAFETY: mallopt takes two numbers.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES);
    }
}

/// Few heaps, for a program with many threads that must not keep one for each. Must be called before the first thread
/// is started.
#[cfg(target_env = "gnu")]
pub fn use_few_heaps() {
    const HEAPS: libc::c_int = 4;
    const MAPPED_BYTES: libc::c_int = 1024 * 1024;
    #[allow(unsafe_code, reason = "there is no other way to tell the allocator")]
    // SAFETY: mallopt takes two numbers.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, HEAPS);
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
    }
}

/// Returns freed pages to the host if more than `slack` bytes are resident but unused. Returns how many bytes that
/// freed; None if there was no need.
#[cfg(target_env = "gnu")]
pub fn give_back_beyond(slack: u64) -> Option<u64> {
    let before = resident().filter(|resident| *resident > in_use() + slack)?;
    trim();
    Some(before.saturating_sub(resident().unwrap_or(before)))
}

/// Our own bytes, without those of files.
#[cfg(target_env = "gnu")]
fn resident() -> Option<u64> {
    const PAGE: u64 = 4096;
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = statm.split(' ').skip(1).map_while(|field| field.parse::<u64>().ok());
    let (resident, shared) = (pages.next()?, pages.next()?);
    Some(resident.saturating_sub(shared) * PAGE)
}

#[cfg(target_env = "gnu")]
fn in_use() -> u64 {
    #[allow(unsafe_code, reason = "only the allocator knows")]
    // SAFETY: mallinfo2 takes nothing and returns numbers.
    let info = unsafe { libc::mallinfo2() };
    (info.uordblks + info.hblkhd) as u64
}

#[cfg(target_env = "gnu")]
fn trim() {
    #[allow(unsafe_code, reason = "there is no other way to tell the allocator")]
    // SAFETY: malloc_trim takes a number and touches only what is free.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Returns freed pages to the host. Takes a few milliseconds with a large heap.
#[cfg(target_env = "gnu")]
pub fn give_back() {
    trim();
}

/// No-op with other allocators.
#[cfg(not(target_env = "gnu"))]
pub fn use_one_heap() {}

/// No-op with other allocators.
#[cfg(not(target_env = "gnu"))]
pub fn give_back() {}

/// No-op with other allocators.
#[cfg(not(target_env = "gnu"))]
pub fn use_few_heaps() {}

/// No-op with other allocators.
#[cfg(not(target_env = "gnu"))]
pub fn give_back_beyond(_: u64) -> Option<u64> {
    None
}
