//! Compiles the files in `proto/` without `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["link.proto", "relay.proto"], ["proto"])?;
    prost_build::Config::new()
        // The secret of a join token must not reach a log; src/lib.rs has a Debug without it.
        .skip_debug(["proctor.link.v1.Enrol", "proctor.link.v1.EnrolRelay"])
        .compile_fds(files)?;
    Ok(())
}
