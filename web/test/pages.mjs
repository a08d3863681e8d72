// The address of every page, for screenshots and for the accessibility check.
export async function pagesOf({ url, token }) {
  const ask = async (path) =>
    (await fetch(`${url}/api/v1${path}`, { headers: { authorization: `Bearer ${token}` } })).json();
  const { tasks } = await ask("/tasks?limit=50");
  const rolling = tasks.find((task) => task.rollout) ?? tasks[0];
  const failed = tasks.find((task) => task.failed > 0) ?? tasks[0];
  const [upgrade] = (await ask("/upgrades")).upgrades;
  const [newest] = (await ask("/events?limit=1")).events;
  const past = Math.floor(Date.now() / 1000);
  const task = (each) => `/tasks/${encodeURIComponent(each.task_id)}`;
  const edge = "/processes/web/edge-proxy";
  return {
    overview: "/",
    processes: "/processes",
    "processes-groups": "/processes?view=groups",
    "processes-empty": "/processes?namespace=nothing",
    process: "/processes/swarm/p-1",
    "process-timeline": `${edge}?tab=timeline`,
    "process-usage": `${edge}?tab=usage`,
    "process-log": `${edge}?tab=log`,
    "process-spec": `${edge}?tab=spec`,
    "process-diff": `${edge}?tab=spec&view=history`,
    "process-json": `${edge}?tab=spec&view=json`,
    "process-output": "/processes/web/bad-config?tab=output",
    "process-unregister": `${edge}?do=unregister`,
    operate: "/operate?op=restart&process=swarm%2Fp-1&parallel=10%25&canary=5",
    register: "/register",
    edit: "/register?process=web%2Fedge-proxy",
    hosts: "/hosts",
    host: "/hosts/0%3A127.0.0.1",
    "host-events": "/hosts/0%3A127.0.0.1?tab=events",
    "host-pools": "/hosts/0%3A127.0.0.1?tab=pools",
    "hosts-unserved": "/hosts?view=unserved",
    pools: "/pools",
    pool: "/pools/0%3A127.0.0.1/web/web",
    "pool-set": "/pools?do=set",
    "pool-change": "/pools/0%3A127.0.0.1/web/web?do=edit",
    "pool-delete": "/pools/0%3A127.0.0.1/web/web?do=delete",
    tasks: "/tasks",
    "task-rolling": task(rolling),
    "task-failed": task(failed),
    "task-output": `${task(failed)}?target=0`,
    "operate-retry": `/operate?retry=${encodeURIComponent(failed.task_id)}`,
    events: "/events",
    "events-past": `/events?since=${past - 3600}&until=${past}`,
    "event-json": `/events?event=${newest.id}`,
    audit: "/audit",
    "audit-entry": "/audit?entry=1",
    enrol: "/enrol",
    relays: "/relays",
    "relay-add": "/relays?do=add",
    upgrades: "/upgrades",
    upgrade: `/upgrades/${upgrade.id}`,
    authority: "/authority",
    "authority-prepare": "/authority?do=prepare",
    "access-users": "/access",
    "access-tokens": "/access?tokens=fleet-admin",
    "access-apps": "/access?tab=apps",
    "access-roles": "/access?tab=roles",
    "access-businesses": "/access?tab=businesses",
    "access-bindings": "/access?tab=bindings",
    "access-check": "/access?tab=check&subject=user%3Aon-call&business=2&cloud=0",
    webhooks: "/webhooks",
    settings: "/settings",
    "not-found": "/nowhere",
  };
}
