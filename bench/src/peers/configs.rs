//! The peers' configurations. All workers are started by a shell, as Proctor starts them.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::json;

use super::{Crowd, Kind, Launch};

/// Where its program is below the peers' directory.
pub(super) fn program(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Proctor | Kind::ProctorForeground | Kind::ProctorMetrics => None,
        Kind::Supervisord => Some("supervisor/bin/supervisord"),
        Kind::Monit => Some("debian/usr/bin/monit"),
        Kind::Runit => Some("debian/usr/bin/runsvdir"),
        Kind::S6 => Some("debian/usr/bin/s6-svscan"),
        Kind::Circus => Some("circus/bin/circusd"),
        Kind::Pm2 => Some("pm2/node_modules/.bin/pm2"),
    }
}

/// Writes what it needs into its directory and returns how to run it.
pub(super) fn write(kind: Kind, crowd: &Crowd<'_>, names: &[String], dir: &Path) -> Result<Launch> {
    let (arguments, more) = match kind {
        Kind::Proctor | Kind::ProctorForeground | Kind::ProctorMetrics => {
            anyhow::bail!("Proctor is started through its server")
        }
        Kind::Supervisord => (supervisord(crowd, names, dir)?, Vec::new()),
        Kind::Monit => (monit(crowd, names, dir)?, Vec::new()),
        Kind::Runit => (service_directories(crowd, names, dir, &["-P"])?, Vec::new()),
        Kind::S6 => (service_directories(crowd, names, dir, &["-c", "20000"])?, Vec::new()),
        Kind::Circus => (circus(crowd, names, dir)?, Vec::new()),
        Kind::Pm2 => (pm2(crowd, names, dir)?, vec![("PM2_HOME", dir.join("home").display().to_string())]),
    };
    let debian = crowd.peers.join("debian");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut environment =
        vec![("PATH", format!("{}:{path}", debian.join("usr/bin").display())), ("LD_LIBRARY_PATH", libraries(&debian))];
    environment.extend(more);
    let program = crowd.peers.join(program(kind).unwrap_or_default());
    if kind == Kind::S6 {
        return Ok(in_place(&program, &arguments, environment));
    }
    Ok(Launch { program, arguments, environment })
}

/// Debian's s6-svscan looks for s6-supervise in /usr/bin and nowhere else. It finds it there in a mount namespace
/// that only this process and its children have.
fn in_place(program: &Path, arguments: &[String], environment: Vec<(&'static str, String)>) -> Launch {
    let own = program.parent().unwrap_or(program).display();
    let line = format!("mount -t overlay overlay -o lowerdir={own}:/usr/bin /usr/bin && exec \"$@\"");
    let mut all = vec!["-m".to_owned(), "sh".to_owned(), "-c".to_owned(), line, "sh".to_owned()];
    all.push(program.display().to_string());
    all.extend_from_slice(arguments);
    Launch { program: PathBuf::from("/usr/bin/unshare"), arguments: all, environment }
}

/// Directories of libraries of unpacked Debian packages.
fn libraries(debian: &Path) -> String {
    let parents = [debian.join("usr/lib"), debian.join("lib")];
    let children = parents.iter().filter_map(|parent| std::fs::read_dir(parent).ok()).flatten().flatten();
    let directories: Vec<PathBuf> = children.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    directories.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(":")
}

fn supervisord(crowd: &Crowd<'_>, names: &[String], dir: &Path) -> Result<Vec<String>> {
    let (file, shown) = (dir.join("supervisord.conf"), dir.display());
    let mut text = format!(
        "[supervisord]\nnodaemon=true\nlogfile=/dev/null\nlogfile_maxbytes=0\npidfile={shown}/pid\nminfds=8192\n\
         [unix_http_server]\nfile={shown}/rpc\n\
         [rpcinterface:supervisor]\n\
         supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface\n"
    );
    if crowd.limits {
        let memmon = crowd.peers.join("supervisor/bin/memmon");
        write!(text, "[eventlistener:memmon]\ncommand={} -a 1GB\nevents=TICK_60\n", memmon.display())?;
    }
    for name in names {
        write!(
            text,
            "[program:{name}]\ncommand=/bin/sh -c \"{}\"\nautorestart=true\nstartsecs=0\nstartretries=1000000\n\
             stdout_logfile=NONE\nstderr_logfile=NONE\n",
            crowd.worker.foreground(name)
        )?;
    }
    std::fs::write(&file, text)?;
    Ok(vec!["-c".to_owned(), file.display().to_string()])
}

/// It knows processes by pid file, as we do, so its command leaves the worker in the background.
fn monit(crowd: &Crowd<'_>, names: &[String], dir: &Path) -> Result<Vec<String>> {
    let (file, shown) = (dir.join("monitrc"), dir.display());
    let period = if crowd.limits { 10 } else { 1 };
    let mut text = format!(
        "set daemon {period}\nset pidfile {shown}/monit.pid\nset idfile {shown}/monit.id\n\
         set statefile {shown}/monit.state\nset httpd unixsocket {shown}/monit.sock allow root:root\n"
    );
    for name in names {
        let pid_file = dir.join(format!("{name}.pid"));
        let line = crowd.worker.daemon(name, &pid_file);
        writeln!(text, "check process {name} with pidfile {}", pid_file.display())?;
        writeln!(text, "  start program = \"/bin/sh -c '{line}'\"")?;
        if crowd.limits {
            writeln!(text, "  if total cpu > 50% for 2 cycles then restart")?;
            writeln!(text, "  if total memory > 50% for 2 cycles then restart")?;
        }
    }
    std::fs::write(&file, text)?;
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600))?;
    Ok(vec!["-I".to_owned(), "-c".to_owned(), file.display().to_string()])
}

/// One directory with a `run` script for each: runit and s6.
fn service_directories(crowd: &Crowd<'_>, names: &[String], dir: &Path, options: &[&str]) -> Result<Vec<String>> {
    let services = dir.join("services");
    for name in names {
        let service = services.join(name);
        std::fs::create_dir_all(&service)?;
        let run = service.join("run");
        if !run.exists() {
            std::fs::write(&run, format!("#!/bin/sh\n{}\n", crowd.worker.foreground(name)))?;
            std::fs::set_permissions(&run, std::fs::Permissions::from_mode(0o755))?;
        }
    }
    let mut arguments: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
    arguments.push(services.display().to_string());
    Ok(arguments)
}

fn circus(crowd: &Crowd<'_>, names: &[String], dir: &Path) -> Result<Vec<String>> {
    let (file, shown) = (dir.join("circus.ini"), dir.display());
    let mut text = format!(
        "[circus]\ncheck_delay = 1\nwarmup_delay = 0\nendpoint = ipc://{shown}/control\n\
         pubsub_endpoint = ipc://{shown}/events\nstats_endpoint = ipc://{shown}/stats\n"
    );
    for name in names {
        let line = crowd.worker.foreground(name);
        write!(
            text,
            "[watcher:{name}]\ncmd = /bin/sh -c \"{line}\"\nnumprocesses = 1\ncopy_env = True\nmax_retry = -1\n"
        )?;
    }
    std::fs::write(&file, text)?;
    Ok(vec![file.display().to_string()])
}

fn pm2(crowd: &Crowd<'_>, names: &[String], dir: &Path) -> Result<Vec<String>> {
    let file = dir.join("ecosystem.config.json");
    let apps: Vec<_> = names
        .iter()
        .map(|name| {
            let mut app = json!({
                "name": name, "script": "/bin/sh", "args": ["-c", crowd.worker.foreground(name)], "interpreter": "none",
                "autorestart": true, "max_restarts": 1_000_000, "min_uptime": 0, "restart_delay": 0, "vizion": false,
                "out_file": "/dev/null", "error_file": "/dev/null", "cwd": dir,
                "pid_file": dir.join(format!("{name}.pid")),
            });
            if crowd.limits {
                app["max_memory_restart"] = json!("1G");
            }
            app
        })
        .collect();
    std::fs::write(&file, json!({"apps": apps}).to_string())?;
    Ok(vec!["start".to_owned(), file.display().to_string()])
}
