import type { Messages } from "..";

export const events: Messages["events"] = {
  title: "事件",
  live: "实时",
  paused: "已暂停",
  pause: "暂停",
  resume: "继续",
  waiting: (n) => `${n} 条新事件`,
  filter: { namespace: "命名空间", name: "名称", host: "主机", type: "类型" },
  column: { time: "时间", type: "类型", process: "进程", host: "主机", content: "内容" },
  emptyTitle: "还没有事件",
  emptyText: "启动、退出、拉起、驱逐以及 Agent 上下线都会实时显示在这里。",
  past: "历史",
  overTime: "事件随时间的分布",
  span: { hour: "1 小时", day: "24 小时", week: "7 天" },
  inSpan: {
    hour: (n) => `最近 1 小时 ${n} 条事件`,
    day: (n) => `最近 24 小时 ${n} 条事件`,
    week: (n) => `最近 7 天 ${n} 条事件`,
  },
  inStep: (from, until, n) => `${from} – ${until}：${n}`,
  now: "现在",
  one: "事件",
  toLive: "返回实时",
  json: "事件 JSON",
  storedLater: (text) => `${text}后入库`,
};
