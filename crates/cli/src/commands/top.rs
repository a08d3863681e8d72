//! `proctor top`: live CPU and memory of processes. Without a terminal, one table.

use std::io::IsTerminal;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use proctor_client::{Client, LIMIT_MAX, ProcessQuery, ProcessSort, ProcessView};
use proctor_runtime::clock;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};
use ratatui::{DefaultTerminal, Frame};
use tokio::sync::{mpsc, watch};

use super::{CommandEnd, Session, processes};
use crate::args::Output;
use crate::output::{self, CellStyle, one_line};

const REFRESH: Duration = Duration::from_secs(2);
/// How long the thread that reads keys may outlive the view.
const KEY_POLL: Duration = Duration::from_millis(200);

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Only this namespace
    #[arg(short, long, env = "PROCTOR_NAMESPACE")]
    namespace: Option<String>,
    /// What is largest first; the keys c and m change it
    #[arg(long, env = "PROCTOR_TOP_SORT", value_name = "BY", default_value = "cpu")]
    sort: By,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum By {
    Cpu,
    Memory,
}

pub(super) async fn top(session: &Session, args: TopArgs) -> Result<CommandEnd> {
    let people = matches!(session.output, Output::Table | Output::Wide);
    if !people || !std::io::stdout().is_terminal() {
        let rows = fetch(&session.client, args.namespace.as_deref(), args.sort).await?;
        output::print(session.output, &rows, |rows| processes::table(rows, clock::unix_millis()))?;
        return Ok(CommandEnd::Success);
    }
    let mut terminal = ratatui::try_init().context("cannot take over the terminal")?;
    let result = live(&mut terminal, session.client.clone(), args).await;
    ratatui::restore();
    result
}

async fn fetch(client: &Client, namespace: Option<&str>, by: By) -> proctor_client::Result<Vec<ProcessView>> {
    let sort = match by {
        By::Cpu => ProcessSort::Cpu,
        By::Memory => ProcessSort::Memory,
    };
    let query = ProcessQuery {
        namespace: namespace.map(str::to_owned),
        sort: Some(sort),
        limit: Some(LIMIT_MAX),
        ..ProcessQuery::default()
    };
    Ok(client.processes(&query).await?.processes)
}

/// Keys are handled even while the server is slow: it is queried in parallel.
async fn live(terminal: &mut DefaultTerminal, client: Client, args: TopArgs) -> Result<CommandEnd> {
    let (by, asked) = watch::channel(args.sort);
    let (send_rows, mut rows) = mpsc::channel(1);
    let mut poller = pin!(poll(client, args.namespace, asked, send_rows));
    let (send_keys, mut keys) = mpsc::channel(16);
    let reader = std::thread::spawn(move || read_keys(&send_keys));
    let mut view = View { by: args.sort, rows: Vec::new(), chosen: TableState::default(), problem: None };
    let ended = loop {
        if let Err(error) = terminal.draw(|frame| view.draw(frame)) {
            break Err(error).context("cannot draw on the terminal");
        }
        tokio::select! {
            Some(fetched) = rows.recv() => view.take(fetched),
            Some(key) = keys.recv() => {
                if view.obey(key) == Next::End {
                    break Ok(CommandEnd::Success);
                }
                by.send_if_modified(|by| std::mem::replace(by, view.by) != view.by);
            }
            () = &mut poller => break Ok(CommandEnd::Success),
        }
    };
    drop(keys);
    // It notices within KEY_POLL; a reader that panicked has nothing more to say.
    let _ = tokio::task::spawn_blocking(move || reader.join()).await;
    ended
}

type Fetched = Result<Vec<ProcessView>, String>;

async fn poll(client: Client, namespace: Option<String>, mut by: watch::Receiver<By>, rows: mpsc::Sender<Fetched>) {
    loop {
        let asked = *by.borrow_and_update();
        let fetched = fetch(&client, namespace.as_deref(), asked).await.map_err(|error| error.to_string());
        if rows.send(fetched).await.is_err() {
            return;
        }
        // A new order is shown at once.
        if let Ok(Err(_)) = tokio::time::timeout(REFRESH, by.changed()).await {
            return;
        }
    }
}

fn read_keys(keys: &mpsc::Sender<KeyCode>) {
    while !keys.is_closed() {
        match event::poll(KEY_POLL) {
            Ok(false) => continue,
            Ok(true) => {}
            Err(_) => return,
        }
        let Ok(event) = event::read() else { return };
        let code = match event {
            Event::Key(key) if key.kind == KeyEventKind::Release => continue,
            Event::Key(key) if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') => {
                KeyCode::Char('q')
            }
            Event::Key(key) => key.code,
            // Only a redraw follows.
            Event::Resize(..) => KeyCode::Null,
            Event::FocusGained | Event::FocusLost | Event::Mouse(_) | Event::Paste(_) => continue,
        };
        if keys.blocking_send(code).is_err() {
            return;
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Next {
    GoOn,
    End,
}

struct View {
    by: By,
    rows: Vec<ProcessView>,
    chosen: TableState,
    problem: Option<String>,
}

impl View {
    fn take(&mut self, fetched: Fetched) {
        match fetched {
            Ok(rows) => {
                self.rows = rows;
                self.problem = None;
            }
            Err(problem) => self.problem = Some(problem),
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "every other key means nothing here")]
    fn obey(&mut self, key: KeyCode) -> Next {
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return Next::End,
            KeyCode::Char('c') => self.by = By::Cpu,
            KeyCode::Char('m') => self.by = By::Memory,
            KeyCode::Char('j') | KeyCode::Down => self.chosen.select_next(),
            KeyCode::Char('k') | KeyCode::Up => self.chosen.select_previous(),
            _ => {}
        }
        Next::GoOn
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(frame.area());
        let by = if self.by == By::Cpu { "cpu" } else { "memory" };
        let line = match &self.problem {
            Some(problem) => format!("{}; trying again", one_line(problem)),
            None => format!("{} processes by {by}   q quit  c cpu  m memory  j/k move", self.rows.len()),
        };
        let style = if self.problem.is_some() { Style::new().fg(Color::Red) } else { Style::new() };
        frame.render_widget(Paragraph::new(line).style(style), head);
        let widths = [
            Constraint::Fill(3),
            Constraint::Fill(2),
            Constraint::Length(18),
            Constraint::Length(8),
            Constraint::Length(7),
            Constraint::Length(7),
            Constraint::Length(9),
        ];
        let header = ["PROCESS", "HOST", "PHASE", "PID", "CPU%", "MEM%", "RESTARTS"];
        let table = Table::new(self.rows.iter().map(row), widths)
            .header(Row::new(header).style(Style::new().add_modifier(Modifier::BOLD)))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        frame.render_stateful_widget(table, body, &mut self.chosen);
    }
}

fn row(process: &ProcessView) -> Row<'static> {
    let (phase, style) = processes::phase(process.phase, process.online);
    let colour = match style {
        CellStyle::Plain => Color::Reset,
        CellStyle::Good => Color::Green,
        CellStyle::Warning => Color::Yellow,
        CellStyle::Bad => Color::Red,
    };
    Row::new([
        Cell::new(one_line(&process.process)),
        Cell::new(process.host.clone()),
        Cell::new(phase).style(Style::new().fg(colour)),
        Cell::new(process.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string())),
        Cell::new(format!("{:>5.1}", process.cpu_percent)),
        Cell::new(format!("{:>5.1}", process.memory_percent)),
        Cell::new(process.restarts.to_string()),
    ])
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    use super::*;

    fn view() -> View {
        let process = serde_json::from_value(json!({
            "process": "web/进程", "host": "0:10.0.0.1", "agent": "a-1", "online": true, "phase": "running",
            "managed": true, "pid": 77, "cpu_percent": 12.5, "memory_percent": 3.0, "started_at": 0, "restarts": 4,
            "version": "", "reason": "", "lifetime": "resident", "generation": 1,
        }))
        .unwrap();
        View { by: By::Cpu, rows: vec![process], chosen: TableState::default(), problem: None }
    }

    fn drawn(view: &mut View) -> String {
        let mut terminal = Terminal::new(TestBackend::new(90, 4)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_process_is_drawn_with_what_it_uses() {
        let text = drawn(&mut view());

        for part in ["1 processes by cpu", "web/进", "0:10.0.0.1", "running", "77", "12.5", "3.0"] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn keys_choose_the_order_and_the_row_and_end_the_view() {
        let mut view = view();

        assert_eq!(view.obey(KeyCode::Char('m')), Next::GoOn);
        assert_eq!(view.by, By::Memory);
        view.obey(KeyCode::Char('j'));
        assert_eq!(view.chosen.selected(), Some(0));
        assert_eq!(view.obey(KeyCode::Char('q')), Next::End);
    }

    #[test]
    fn a_server_that_is_away_leaves_the_last_rows() {
        let mut view = view();

        view.take(Err("cannot reach http://h".into()));

        let text = drawn(&mut view);
        assert!(text.contains("cannot reach http://h; trying again") && text.contains("0:10.0.0.1"), "{text}");
    }
}
