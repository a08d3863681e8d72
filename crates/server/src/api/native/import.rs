//! Places many hosts at once, from a JSON list or from lines of CSV: all or nothing.

use std::collections::BTreeMap;
use std::net::IpAddr;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::header;
use proctor_api::{ImportRow, Imported, Object};
use proctor_model::{FieldError, HostKey, messages};
use proctor_store::Business;

use super::body::{from_json, malformed, read_parsed};
use super::businesses::checked_name;
use super::caller::Authenticated;
use super::described;
use super::{ApiState, Result};

const ROWS_MAX: usize = 200_000;
/// Number of mistakes that are reported at once.
const MISTAKES_MAX: usize = 20;
/// What the first line may say instead of a host.
const HEADER: &str = "cloud";

/// Assigns many hosts at once, and creates or renames their businesses.
///
/// As JSON a list of rows; as CSV lines of `cloud,ip,business[,business_name]`, of which the first may be a header.
#[utoipa::path(post, path = "/hosts/import", operation_id = "import_hosts", tag = "hosts",
               request_body(content((Vec<ImportRow> = "application/json"), (String = "text/csv"))),
               responses((status = 200, body = Imported)))]
pub(super) async fn import(
    caller: Authenticated,
    State(state): State<ApiState>,
    request: Request,
) -> Result<Json<Imported>> {
    let content_type = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let is_csv = content_type.is_some_and(|text| text.trim_start().starts_with("text/csv"));
    let rows = read_parsed(request, &state, if is_csv { from_csv } else { from_list }).await?;
    let (placements, businesses) = checked(rows, is_csv)?;
    let imported = Imported { hosts: placements.len(), businesses: businesses.len() };
    let targets = described::placements(&state.control, &placements).await?;
    caller
        .administer(&state, "import_hosts", targets, async move |control| {
            control.import_hosts(&businesses, &placements).await
        })
        .await?;
    Ok(Json(imported))
}

type Placements = Vec<(HostKey, Option<u64>)>;

fn checked(rows: Vec<ImportRow>, is_csv: bool) -> Result<(Placements, Vec<Business>)> {
    if rows.len() > ROWS_MAX {
        return Err(malformed(messages::too_many_rows(rows.len(), ROWS_MAX)));
    }
    let mut businesses = BTreeMap::new();
    let mut placements = Vec::with_capacity(rows.len());
    for (index, row) in rows.into_iter().enumerate() {
        let inside = |error: FieldError| if is_csv { error } else { error.inside(&format!("[{index}]")) };
        if let Some(name) = row.business_name {
            let Some(business) = row.business else {
                return Err(inside(FieldError::new("business_name", messages::business_name_without_business())).into());
            };
            businesses.insert(business, checked_name(name).map_err(|error| inside(error.inside("business_name")))?);
        }
        placements.push((HostKey::new(row.cloud, 0, row.ip), row.business));
    }
    Ok((placements, businesses.into_iter().map(|(id, name)| Business { id, name }).collect()))
}

fn from_list(bytes: &[u8]) -> Result<Vec<ImportRow>> {
    Ok(from_json::<Vec<Object<ImportRow>>>(bytes)?.into_iter().map(|Object(row)| row).collect())
}

/// Every invalid line is reported, up to a number.
fn from_csv(bytes: &[u8]) -> Result<Vec<ImportRow>> {
    let mut reader =
        csv::ReaderBuilder::new().has_headers(false).flexible(true).trim(csv::Trim::All).from_reader(bytes);
    let mut rows = Vec::new();
    let mut mistakes: Vec<FieldError> = Vec::new();
    for (number, record) in (1..).zip(reader.records()) {
        let line = |error: FieldError| error.inside(&format!("row {number}"));
        let record = record.map_err(|error| line(FieldError::new("", messages::because(error))))?;
        if number == 1 && record.get(0) == Some(HEADER) {
            continue;
        }
        match csv_row(&record) {
            Ok(row) => rows.push(row),
            Err(error) => mistakes.push(line(error)),
        }
        if mistakes.len() >= MISTAKES_MAX {
            break;
        }
    }
    let mut mistakes = mistakes.into_iter();
    let Some(first) = mistakes.next() else { return Ok(rows) };
    let problem = mistakes.fold(first.problem, |all, mistake| messages::several(all, mistake.message()));
    Err(FieldError::new(first.field, problem).into())
}

fn csv_row(record: &csv::StringRecord) -> std::result::Result<ImportRow, FieldError> {
    if !(3..=4).contains(&record.len()) {
        let problem = messages::has_wrong_columns(record.len());
        return Err(FieldError::new("", problem));
    }
    let number = |column: &str, text: &str| {
        text.parse::<u64>().map_err(|_| FieldError::new(column, messages::not_a_whole_number(format_args!("'{text}'"))))
    };
    let cloud = number("cloud", &record[0])?;
    let cloud = u32::try_from(cloud).map_err(|_| FieldError::new("cloud", messages::too_large(cloud)))?;
    let ip: IpAddr = record[1].parse().map_err(|_| FieldError::new("ip", messages::not_an_address(&record[1])))?;
    let business = if record[2].is_empty() { None } else { Some(number("business", &record[2])?) };
    let business_name = record.get(3).filter(|name| !name.is_empty()).map(str::to_owned);
    if business_name.is_some() && business.is_none() {
        return Err(FieldError::new("business_name", messages::business_name_without_business()));
    }
    Ok(ImportRow { cloud, ip, business, business_name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_hosts_with_a_header_or_without() {
        let rows =
            from_csv("cloud,ip,business,business_name\n0,10.0.0.1,3,\"网站, 一\"\n1, ::1 ,,\n".as_bytes()).unwrap();
        let bare = from_csv(b"0,10.0.0.1,3").unwrap();

        let first = ImportRow {
            cloud: 0,
            ip: "10.0.0.1".parse().unwrap(),
            business: Some(3),
            business_name: Some("网站, 一".to_owned()),
        };
        assert_eq!(rows[0], first);
        assert_eq!((rows[1].cloud, rows[1].business), (1, None));
        assert_eq!(bare, [ImportRow { business_name: None, ..first }]);
    }

    #[test]
    fn every_wrong_line_is_told_with_its_number() {
        let error =
            from_csv(b"cloud,ip,business\n0,ten,3\n0,10.0.0.1,3\nx,10.0.0.1,3\n0\n0,10.0.0.1,,name\n").unwrap_err();

        assert_eq!(error.field(), Some("row 2.ip"));
        let message = error.message();
        for path in ["row 2.ip: 'ten'", "row 4.cloud: 'x'", "row 5: has 1 columns", "row 6.business_name"] {
            assert!(message.contains(path), "{message}");
        }
    }

    #[test]
    fn a_wrong_row_of_a_list_is_reported_with_its_number() {
        let error = from_list(br#"[{"ip":"10.0.0.1","business":1},{"ip":"x","business":1}]"#).unwrap_err();
        let list = from_list(br#"[{"ip":"10.0.0.1","business":1},[0,"10.0.0.1",1]]"#).unwrap_err();

        assert_eq!(error.field(), Some("[1].ip"));
        assert_eq!(list.field(), Some("[1]"));
    }
}
