//! Command-line arguments for traces.

#[cfg(feature = "otlp")]
use crate::otlp;
use crate::{TraceError, Traces};

/// A build without OpenTelemetry has none.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct TraceArguments {
    /// Send traces of tasks to this OpenTelemetry collector, by OTLP over HTTP
    #[cfg(feature = "otlp")]
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_parser = checked)]
    otlp_endpoint: Option<String>,
}

/// Traces are exported as long as this exists.
#[derive(Debug, Default)]
pub struct Tracing {
    pub traces: Traces,
    #[cfg(feature = "otlp")]
    _collector: Option<otlp::Collector>,
}

impl TraceArguments {
    #[cfg(not(feature = "otlp"))]
    pub fn start(&self, _service: &'static str, _version: &'static str) -> Result<Tracing, TraceError> {
        Ok(Tracing::default())
    }

    #[cfg(feature = "otlp")]
    pub fn start(&self, service: &'static str, version: &'static str) -> Result<Tracing, TraceError> {
        let Some(address) = &self.otlp_endpoint else { return Ok(Tracing::default()) };
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let (traces, collector) = otlp::start(address, otlp::Source { service, version, host: &host })?;
        Ok(Tracing { traces, _collector: Some(collector) })
    }
}

#[cfg(feature = "otlp")]
fn checked(address: &str) -> Result<String, TraceError> {
    otlp::check(address).map(|()| address.to_owned())
}
