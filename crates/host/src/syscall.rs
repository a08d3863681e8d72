//! Raw system calls, for a child between fork and exec.
//!
//! Promised: a child that shares our memory writes none of it, not even libc's errno, which belongs to the thread
//! that made the child.
//! Absent: everything that libc adds to a call.

/// The result, or the error number.
pub(crate) type Answer = Result<usize, i32>;

/// # Safety
///
/// What the call does with its arguments must be sound: addresses are of memory that lives as long as
/// the call and is as large as it takes it to be.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "the kernel's own interface")]
pub(crate) unsafe fn call(number: libc::c_long, [a, b, c, d]: [usize; 4]) -> Answer {
    let result: isize;
    // SAFETY: the kernel changes the three registers that are named, and no memory but that of the
    // arguments, for which our caller answers.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    match usize::try_from(result) {
        Ok(answer) => Ok(answer),
        Err(_) => Err(i32::try_from(-result).unwrap_or(libc::EINVAL)),
    }
}

/// Elsewhere a child has a copy of our memory, and so an errno of its own.
///
/// # Safety
///
/// As above.
#[cfg(not(target_arch = "x86_64"))]
#[allow(unsafe_code, reason = "the kernel's own interface")]
pub(crate) unsafe fn call(number: libc::c_long, [a, b, c, d]: [usize; 4]) -> Answer {
    // SAFETY: passed on to our caller.
    let result = unsafe { libc::syscall(number, a, b, c, d) };
    usize::try_from(result).map_err(|_| std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL))
}

/// A call that takes only numbers.
pub(crate) fn numbers(number: libc::c_long, arguments: [usize; 4]) -> Answer {
    #[allow(unsafe_code, reason = "the kernel's own interface")]
    // SAFETY: no argument is an address.
    unsafe {
        call(number, arguments)
    }
}

/// Exits this process, without anything that libc would do before.
pub(crate) fn exit(code: usize) -> ! {
    loop {
        let _ = numbers(libc::SYS_exit_group, [code, 0, 0, 0]);
    }
}
