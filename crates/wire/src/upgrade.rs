//! Conversions of upgrades.
//!
//! From the wire: an order or report that cannot be parsed, perhaps of a newer peer, is skipped.

use std::time::Duration;

use proctor_model::{Phrase, UpgradeStep, VERSION_BYTES_MAX};
use uuid::Uuid;

use crate::message::{FromAgent, FromServer, UpgradeOrder};
use crate::value::{bounded, message, millis, numbered, short};
use crate::{WireError, proto};

/// The most bytes of a build in one message.
pub const BUILD_PART_BYTES_MAX: usize = 256 * 1024;
/// A sentence or two.
const REASON_BYTES_MAX: usize = 4 * 1024;

numbered!(number_of_step, step, UpgradeStep, "upgrade step", Fetching, Trying, Done, Failed);

fn id(bytes: &[u8]) -> Result<Uuid, WireError> {
    Uuid::from_slice(bytes).map_err(|_| WireError::Missing { what: "the id of an upgrade" })
}

pub(crate) fn order_to(order: UpgradeOrder) -> proto::Upgrade {
    proto::Upgrade {
        upgrade: order.upgrade.as_bytes().to_vec(),
        version: order.version,
        arch: order.arch,
        sha256: order.sha256.to_vec(),
        size: order.size,
        allow_downgrade: order.allow_downgrade,
        health_deadline_ms: millis(order.health_deadline),
    }
}

pub(crate) fn order_from(order: proto::Upgrade) -> FromServer {
    let understood = || -> Result<UpgradeOrder, WireError> {
        Ok(UpgradeOrder {
            upgrade: id(&order.upgrade)?,
            version: bounded("version", order.version, VERSION_BYTES_MAX)?,
            arch: short("arch", order.arch)?,
            sha256: order.sha256.try_into().map_err(|_| WireError::Missing { what: "the digest of a build" })?,
            size: order.size,
            allow_downgrade: order.allow_downgrade,
            health_deadline: Duration::from_millis(order.health_deadline_ms),
        })
    };
    understood().map_or(FromServer::Unknown, FromServer::Upgrade)
}

pub(crate) fn part_from(part: proto::BuildPart) -> Result<FromServer, WireError> {
    let bytes = bounded("part of a build", part.bytes, BUILD_PART_BYTES_MAX)?;
    Ok(id(&part.upgrade).map_or(FromServer::Unknown, |upgrade| FromServer::BuildPart {
        upgrade,
        offset: part.offset,
        bytes,
    }))
}

pub(crate) fn report_to(upgrade: Uuid, step: UpgradeStep, reason: proctor_model::Message) -> proto::UpgradeReport {
    let phrase_json = reason.phrase().map(Phrase::to_json);
    let mut reason = reason.into_text();
    reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX));
    proto::UpgradeReport { upgrade: upgrade.as_bytes().to_vec(), step: number_of_step(step), reason, phrase_json }
}

pub(crate) fn report_from(report: proto::UpgradeReport) -> FromAgent {
    let understood = || -> Result<FromAgent, WireError> {
        let reason = bounded("reason of an upgrade", report.reason, REASON_BYTES_MAX)?;
        Ok(FromAgent::UpgradeReport {
            upgrade: id(&report.upgrade)?,
            step: step(report.step)?,
            reason: message(reason, report.phrase_json.as_deref()),
        })
    };
    understood().unwrap_or(FromAgent::Unknown)
}

pub(crate) fn fetch_from(fetch: &proto::FetchBuild) -> FromAgent {
    let understood = |upgrade| FromAgent::FetchBuild { upgrade, offset: fetch.offset, length: fetch.length };
    id(&fetch.upgrade).map_or(FromAgent::Unknown, understood)
}
