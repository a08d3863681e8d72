use std::fs;

use clap::{Args as _, FromArgMatches, Parser, Subcommand};
use tempfile::TempDir;

use super::*;

#[derive(Debug, Parser)]
struct Cli {
    #[arg(long, global = true)]
    log: Option<String>,
    #[command(subcommand)]
    command: Sub,
}

#[derive(Debug, Subcommand)]
enum Sub {
    Server(Server),
}

#[derive(Debug, clap::Args)]
struct Server {
    #[arg(long)]
    config: Option<PathBuf>,
    #[arg(long, default_value_t = 8080, env = "CONFIG_TEST_PORT")]
    http_port: u16,
    #[arg(long)]
    needed: String,
    #[arg(long)]
    proxy: Vec<String>,
    #[arg(long, value_delimiter = ',')]
    names: Vec<String>,
    #[arg(long, conflicts_with = "names")]
    quiet: bool,
}

struct World {
    dir: TempDir,
}

impl World {
    fn with(text: &str) -> Self {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("server.toml"), text).unwrap();
        Self { dir }
    }

    fn read(&self, arguments: &[&str]) -> Result<(Server, Layers), ConfigError> {
        let program = Program {
            command: <Cli as clap::CommandFactory>::command(),
            subcommand: &["server"],
            with: &["log"],
            without: &[],
            file: "config",
            default_file: self.dir.path().join("server.toml"),
        };
        let all = ["proctor", "server"].iter().chain(arguments).map(OsString::from).collect::<Vec<_>>();
        let layers = Layers::read(&program, &all)?;
        let server = Server::from_arg_matches(layers.matches.subcommand_matches("server").unwrap()).unwrap();
        Ok((server, layers))
    }

    fn mistakes(&self, arguments: &[&str]) -> String {
        self.read(arguments).unwrap_err().to_string()
    }
}

fn setting<'a>(layers: &'a Layers, key: &str) -> &'a Setting {
    layers.settings.iter().find(|setting| setting.key == key).unwrap()
}

#[test]
fn a_flag_goes_before_the_file_and_the_file_before_the_default() {
    let world = World::with("http_port = 9000\nneeded = \"file\"\nproxy = [\"a\", \"b\"]\nlog = \"debug\"\n");

    let (server, layers) = world.read(&["--needed", "flag"]).unwrap();

    assert_eq!((server.http_port, server.needed.as_str()), (9000, "flag"));
    assert_eq!(server.proxy, ["a", "b"]);
    assert_eq!(setting(&layers, "http_port").source, Source::File { line: 1 });
    assert_eq!(setting(&layers, "needed").source, Source::Flag);
    assert_eq!(setting(&layers, "proxy").value.as_deref(), Some("a,b"));
    assert_eq!(setting(&layers, "log").source, Source::File { line: 4 });
    assert_eq!(setting(&layers, "quiet").source, Source::Default);
    assert!(layers.settings.iter().all(|setting| setting.key != "config"));
}

#[test]
fn what_is_required_may_come_from_the_file_and_is_missed_where_it_does_not() {
    assert_eq!(World::with("needed = \"x\"\n").read(&[]).unwrap().0.needed, "x");
    assert!(World::with("").mistakes(&[]).contains("--needed"));
}

#[test]
fn every_mistake_is_told_with_its_line_and_what_was_probably_meant() {
    let world = World::with("needed = \"x\"\nhttp_prot = 1\nhttp_port = 70000\nquiet = \"yes\"\nwhatever_else = 3\n");

    let said = world.mistakes(&[]);

    assert_eq!(said.lines().count(), 4, "{said}");
    assert!(said.contains("line 2: http_prot: there is no such setting; did you mean http_port?"), "{said}");
    assert!(said.contains("line 3: http_port: invalid value '70000'"), "{said}");
    assert!(said.contains("line 4: quiet: must be true or false"), "{said}");
    assert!(said.contains("line 5: whatever_else: there is no such setting; `config show` lists them"), "{said}");
}

#[test]
fn text_that_is_no_toml_and_sections_are_told_by_line() {
    assert!(World::with("needed = \"x\"\nhttp_port = = 1\n").mistakes(&[]).contains("line 2"));
    assert!(World::with("needed = \"x\"\n[proxy]\na = 1\n").mistakes(&[]).contains("there are no sections"));
}

#[test]
fn a_file_that_is_named_must_be_there_and_the_usual_one_need_not() {
    let world = World { dir: TempDir::new().unwrap() };

    assert!(world.read(&["--needed", "x"]).unwrap().1.file.is_none());
    assert!(matches!(world.read(&["--needed", "x", "--config", "/nonexistent/x"]), Err(ConfigError::Read { .. })));
}

#[test]
fn what_excludes_each_other_does_so_across_flags_and_file() {
    let world = World::with("needed = \"x\"\nnames = [\"a\"]\n");

    assert!(matches!(world.read(&["--quiet"]), Err(ConfigError::Usage(_))));
    assert_eq!(world.read(&[]).unwrap().0.names, ["a"]);
}

#[test]
fn flags_that_are_switched_off_are_off() {
    let world = World::with("needed = \"x\"\nquiet = false\n");

    assert!(!world.read(&[]).unwrap().0.quiet);
    assert!(Server::augment_args(Command::new("x")).get_arguments().count() > 0);
}

#[test]
fn distances_count_letters() {
    for (one, other, expected) in [("", "", 0), ("abc", "abc", 0), ("abc", "axc", 1), ("ab", "abc", 1), ("", "abc", 3)]
    {
        assert_eq!(distance(one, other), expected, "{one} {other}");
    }
}
