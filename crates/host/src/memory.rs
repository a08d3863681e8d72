//! Memory of this program: what it no longer needs goes back to the host.
//!
//! The allocator of glibc keeps a heap for each of many threads, and what was freed inside of them.
//! An agent has few threads at most times and must not stay as large as its largest moment.

/// One heap for all threads. To be called before the first thread is started.
#[cfg(target_env = "gnu")]
pub fn use_one_heap() {
    #[allow(unsafe_code, reason = "there is no other way to tell the allocator")]
    // SAFETY: mallopt takes two numbers.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Gives freed pages back. Takes some milliseconds of a large heap.
#[cfg(target_env = "gnu")]
pub fn give_back() {
    #[allow(unsafe_code, reason = "there is no other way to tell the allocator")]
    // SAFETY: malloc_trim takes a number and touches only what is free.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Other allocators do as they do.
#[cfg(not(target_env = "gnu"))]
pub fn use_one_heap() {}

/// Other allocators do as they do.
#[cfg(not(target_env = "gnu"))]
pub fn give_back() {}
