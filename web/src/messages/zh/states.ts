import type { Messages } from "..";

export const states: Messages["states"] = {
  errorTitle: "加载失败",
  unreachable: "无法连接服务器。",
  forbiddenTitle: "没有查看权限",
  forbidden: (need) => `需要“${need}”权限。管理员可以在“权限 → 授权”中授予。`,
  notFoundTitle: "未找到",
  notFound: "地址有误，或者对象已被删除。",
  toOverview: "回到总览",
  needRight: (need, where) =>
    `需要${where ? `对 ${where} 的` : ""}“${need}”权限，您目前没有。可以请管理员授予。`,
  streamAway: (since) => `自 ${since} 起与服务器断开，当前显示的是断开前的状态，正在重连…`,
  offline: (since) => `本设备已离线，当前显示的是最后一次${since ? `（${since}）` : ""}获取的状态。`,
  crashed: "此页面出错，控制台的其他部分不受影响。",
  updateAvailable: "服务器已更新。",
  reload: "重新加载页面",
};
