import type { Messages } from "..";

export const plans: Messages["plans"] = {
  title: "执行计划",
  would: "预计结果",
  sum: {
    now: (n) => `${n} 台立即生效`,
    later: (n) => `${n} 台在主机恢复连接后生效`,
    same: (n) => `${n} 台无变化`,
    forbidden: (n) => `${n} 台无权限`,
    refused: (n) => `${n} 台被拒绝`,
  },
  later: "主机恢复连接后生效",
  unchanged: "无变化",
  nothing: "没有需要更改的内容",
  failedOn: (n) => `${n} 台主机拒绝了此操作`,
  unregister: {
    title: (process) => `注销 ${process}`,
    text: "Proctor 将不再记录和托管该进程；正在运行的进程会继续运行。",
    runsOn: "注销；进程继续运行，但不再托管",
    stays: "注销",
    yes: (n) => `在 ${n} 台主机上注销`,
  },
  pool: {
    isNew: "新建",
    changes: (n) => `更改：${n}`,
    setYes: (n) => `在 ${n} 台主机上设置`,
    deleted: "删除；成员各自的限额不变",
    deleteYes: (n) => `在 ${n} 台主机上删除`,
    members: "成员",
    over: (resource, used, limit) => `${resource} 已用 ${used}，限额 ${limit}`,
    evicts: "将立即驱逐",
    reports: "仅上报",
    overSum: (n) => `${n} 台当前已超过新限额`,
    fill: "请填写命名空间；设置之前会在这里显示执行计划。",
  },
};
