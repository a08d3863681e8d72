//! Hosts, businesses and join tokens.

use std::collections::BTreeSet;

use futures::Stream;
use proctor_api::{
    ApproveRequest, AuthorityStep, AuthorityView, BusinessList, BusinessName, BusinessSetList, BusinessSetSetting,
    BusinessSetView, BusinessView, CordonRequest, CordonView, CreatedToken, DownloadList, HostPage, HostQuery,
    HostView, ImportRow, Imported, NewToken, Overview, Placed, Placement, RejoinRequest, RejoinView, RelayList,
    RelayView, ServerView, StorageView, TokenList, TokenView, UnservedHostList, UnservedHostView,
};
use reqwest::Method;
use reqwest::header::CONTENT_TYPE;

use crate::paging::pages;
use crate::{Client, NOTHING, Result};

impl Client {
    /// The server itself.
    pub async fn server_view(&self) -> Result<ServerView> {
        self.get(&["server"], NOTHING).await
    }

    /// The size of the server's store.
    pub async fn storage(&self) -> Result<StorageView> {
        self.get(&["storage"], NOTHING).await
    }

    /// One page of the hosts.
    pub async fn hosts(&self, query: &HostQuery) -> Result<HostPage> {
        self.get(&["hosts"], query).await
    }

    /// One host, by its address or its agent's id.
    pub async fn host(&self, host: &str) -> Result<HostView> {
        self.get(&["hosts", host], NOTHING).await
    }

    /// The hosts whose agents have moved to other hosts.
    pub async fn unserved_hosts(&self) -> Result<Vec<UnservedHostView>> {
        let list: UnservedHostList = self.get(&["hosts", "unserved"], NOTHING).await?;
        Ok(list.hosts)
    }

    /// An overview of the whole fleet.
    pub async fn overview(&self) -> Result<Overview> {
        self.get(&["overview"], NOTHING).await
    }

    /// All hosts that match.
    pub fn all_hosts<'a>(&'a self, query: &'a HostQuery) -> impl Stream<Item = Result<HostView>> + 'a {
        pages(move |after: Option<String>| async move {
            let page = self.hosts(&HostQuery { after: after.or_else(|| query.after.clone()), ..query.clone() }).await?;
            Ok((page.hosts, page.next))
        })
    }

    /// Assigns hosts to a business, all or nothing.
    pub async fn place_hosts(&self, hosts: &[String], business: Option<u64>) -> Result<Placed> {
        let body = Placement { hosts: hosts.to_vec(), business };
        self.send(Method::PUT, &["hosts", "placements"], NOTHING, &body).await
    }

    /// Assigns many hosts at once, all or nothing.
    pub async fn import_hosts(&self, rows: &[ImportRow]) -> Result<Imported> {
        self.send(Method::POST, &["hosts", "import"], NOTHING, rows).await
    }

    /// As [`Self::import_hosts`], from lines `cloud,ip,business[,business_name]`.
    pub async fn import_hosts_csv(&self, csv: String) -> Result<Imported> {
        let url = self.url(&["hosts", "import"], NOTHING);
        self.send_request(self.request(Method::POST, url).header(CONTENT_TYPE, "text/csv").body(csv)).await
    }

    pub async fn businesses(&self) -> Result<Vec<BusinessView>> {
        let list: BusinessList = self.get(&["businesses"], NOTHING).await?;
        Ok(list.businesses)
    }

    /// Creates or renames a business.
    pub async fn put_business(&self, id: u64, name: &str) -> Result<BusinessView> {
        let body = BusinessName { name: name.to_owned() };
        self.send(Method::PUT, &["businesses", &id.to_string()], NOTHING, &body).await
    }

    /// Its hosts then belong to none, and sets lose it.
    pub async fn delete_business(&self, id: u64) -> Result<()> {
        self.remove(&["businesses", &id.to_string()]).await
    }

    pub async fn business_sets(&self) -> Result<Vec<BusinessSetView>> {
        let list: BusinessSetList = self.get(&["business-sets"], NOTHING).await?;
        Ok(list.business_sets)
    }

    pub async fn put_business_set(&self, id: u64, name: &str, members: BTreeSet<u64>) -> Result<BusinessSetView> {
        let body = BusinessSetSetting { name: name.to_owned(), members };
        self.send(Method::PUT, &["business-sets", &id.to_string()], NOTHING, &body).await
    }

    pub async fn delete_business_set(&self, id: u64) -> Result<()> {
        self.remove(&["business-sets", &id.to_string()]).await
    }

    /// A join token for agents.
    pub async fn create_token(&self, token: &NewToken) -> Result<CreatedToken> {
        self.send(Method::POST, &["tokens"], NOTHING, token).await
    }

    /// The join tokens, without their secrets.
    pub async fn tokens(&self) -> Result<Vec<TokenView>> {
        let list: TokenList = self.get(&["tokens"], NOTHING).await?;
        Ok(list.tokens)
    }

    /// The certificate authority, and how far its rotation has come.
    pub async fn authority(&self) -> Result<AuthorityView> {
        self.get(&["authority"], NOTHING).await
    }

    /// Takes a step of a rotation: `prepare`, `switch`, `finish` or `abort`.
    pub async fn rotate_authority(&self, step: &str, how: &AuthorityStep) -> Result<AuthorityView> {
        self.send(Method::POST, &["authority", step], NOTHING, how).await
    }

    /// The relays that have enrolled.
    pub async fn relays(&self) -> Result<Vec<RelayView>> {
        let list: RelayList = self.get(&["relays"], NOTHING).await?;
        Ok(list.relays)
    }

    /// It can no longer connect, and the sessions that it carries are closed.
    pub async fn revoke_relay(&self, relay: &str) -> Result<()> {
        self.remove(&["relays", relay]).await
    }

    /// What new hosts can fetch from the server.
    pub async fn downloads(&self) -> Result<DownloadList> {
        self.get(&["downloads"], NOTHING).await
    }

    /// Nobody can enrol with it any more.
    pub async fn revoke_token(&self, id: &str) -> Result<()> {
        self.remove(&["tokens", id]).await
    }

    /// Lets another key take over a known host, once.
    pub async fn allow_rejoin(&self, host: &str, ttl_secs: u64) -> Result<RejoinView> {
        self.send(Method::POST, &["hosts", host, "rejoin"], NOTHING, &RejoinRequest { ttl_secs }).await
    }

    pub async fn withdraw_rejoin(&self, host: &str) -> Result<()> {
        self.remove(&["hosts", host, "rejoin"]).await
    }

    /// Its session is closed, and its certificate opens no other.
    pub async fn revoke_host(&self, host: &str) -> Result<()> {
        self.remove(&["hosts", host, "certificate"]).await
    }

    /// For maintenance: no starts from the fleet, no alarms.
    pub async fn cordon_host(&self, host: &str, cordon: &CordonRequest) -> Result<CordonView> {
        self.send(Method::PUT, &["hosts", host, "cordon"], NOTHING, cordon).await
    }

    pub async fn uncordon_host(&self, host: &str) -> Result<()> {
        self.remove(&["hosts", host, "cordon"]).await
    }

    /// Approves a new host that waits for it, if it enrolled with this key.
    pub async fn approve_host(&self, host: &str, approve: &ApproveRequest) -> Result<HostView> {
        self.send(Method::POST, &["hosts", host, "approve"], NOTHING, approve).await
    }

    /// With its registrations and pools; its processes live on.
    pub async fn remove_host(&self, host: &str) -> Result<()> {
        self.remove(&["hosts", host]).await
    }
}
